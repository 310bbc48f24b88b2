"""Modes: how derivatives compose: load a model, linearise it at a point, multiply, record, prove.

From the bottom up: `model` reads a file and runs it, `linear` is J at a point, and `recording`
reads J over graphs, for exports. The files of this folder are the public functions. `training`,
`sparse`, `curvature`, `estimators`, `solvers`, `data` and `interop` build on J. `verify`
proves the rules, and `show` is the top floor: explanations, pictures and the command line.
"""
