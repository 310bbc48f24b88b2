"""Hostile files: mutated models that must end in a result or in an `OnnxJacError`.

A trial draws a model of the corpus, mutates it, loads it, linearises it at a small random point and
takes one product forward and one backward. Trials run in processes whose memory and processor time
are limited, and which note every file that is opened. All follows from `--seed`.
"""
