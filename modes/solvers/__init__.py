"""Solvers: minima, least squares and roots of a model, by Jacobian products alone.

Arguments name tensors: `of` is minimised or solved for zero, and `wrt` are the variables, which
start at their values in `inputs` or the model. Every solver returns an `OptimizeResult`, with
a flat `x` and with `tensors` by name, and passes one to `callback` after every iteration; a
callback that raises `StopIteration` ends the solver. A terminal shows the number of iterations;
`progress=False` silences it, see `onnxjac.progress`. `preconditioners` builds approximate inverses.
`solve_ivp` takes and returns what SciPy's function of that name does.
"""
