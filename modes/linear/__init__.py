"""Linear: J at a point, as a DAG of the operators of its nodes, and its products.

`derivatives` records the blocks of the active steps, at a point or once for all points; `products`
records products, and `elimination` makes the DAG cheaper first. Above these folders:
`Linearization`, symmetric operators, and their checks.
"""
