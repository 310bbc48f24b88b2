"""Linear: J at a point, as a DAG of the operators of its nodes, and its products.

`tape` records the blocks of the active steps, by a route that all points share; `products` runs
products as programs, and `elimination` makes the DAG cheaper first. Above these folders:
`Linearization`, symmetric operators, and their checks.
"""
