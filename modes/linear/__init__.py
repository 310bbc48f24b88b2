"""Linear: J at a point, as a DAG of the operators of its nodes, and its products.

`tape` records the blocks of the active steps, `products` runs products as programs, and
`elimination` makes the DAG cheaper first. Above these folders: the route that all points share,
`Linearization`, symmetric operators, and their checks.
"""
