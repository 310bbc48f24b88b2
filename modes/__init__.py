"""How derivatives compose: load a model, linearise it at a point, multiply, record, prove.

From the bottom up: `loading` reads a file, `flow` is what a model is made of, `primal` runs it,
`tape` holds the steps that matter, `recording` reads the tape over graphs. `elimination` makes the
DAG of operators cheaper before products are taken, `products` records and executes them. On them
stand the verbs of the public face, and `training` and `verify`; and what is built on J:
`sparse`, `curvature`, `estimators`, `solvers`, `data`. `show` is the top floor: explanations,
reports, HTML, pictures and the command line.
"""
