"""Solvers: minima, least squares and roots of a model, by products with its Jacobian alone.

Arguments name tensors: `of` is minimised or solved for zero, and `wrt` are the variables, which
start at their values in `inputs` or the model. Every solver returns an `OptimizeResult` of SciPy,
with a flat `x` and with `tensors` by name, and calls `callback` with one after every iteration; a
callback that raises `StopIteration` ends the solver. A terminal shows the number of iterations;
`progress=False` is silent, see `onnxjac.progress`. `preconditioners` makes approximate inverses.
"""
