"""Hostile files: mutated models that must end in a result or in an `OnnxJacError`.

A trial draws a model from the corpus, mutates it, loads it, linearises it at a small random point
and computes one JVP and one VJP. Trials run in processes with limited memory and CPU time, which
record every file that is opened. `--seed` determines everything.
"""
