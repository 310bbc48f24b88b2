"""How derivatives compose: load a model, linearise it at a point, multiply, record, prove.

From the bottom up: `loading` reads a file, `flow` holds the contents of a model, `primal` runs the
model, `tape` holds the active steps and their blocks, `recording` reads the tape over graphs.
`products` records and executes products, and `elimination` makes the DAG of operators cheaper
before products are taken. Above these folders stand the public functions, `training` and `verify`,
and the uses of J: `sparse`, `curvature`, `estimators`, `solvers`, `data`. `show` is the top floor:
explanations, reports, HTML, pictures and the command line.
"""
