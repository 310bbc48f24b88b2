"""Solvers: minima, least squares and roots of a model, by products with its Jacobian alone.

Arguments name tensors: `of` is what is minimised or brought to zero, `wrt` what may move; both
start where `inputs` (or the model) put them. Every solver gives an `OptimizeResult` of SciPy,
whose `x` is flat and whose `tensors` are by name, and calls `callback` with one after every
iteration; a callback that raises `StopIteration` ends the solver there.
A terminal shows how many iterations there were; `progress=False` is silent, see `onnxjac.progress`.
"""
