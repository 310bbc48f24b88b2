"""Precision: what single precision costs, measured on every network of this repository.

For each network at its stored point: the relative errors ‖Δ‖ / ‖exact‖ of J v and Jᵀ u in float32,
where exact is the same product in float64, and the residual of the dot test. The exact network has
the weights, the point and the vectors of the other one, all of which float32 holds.

    cd tests && python -m precision               # writes PRECISION.md, in a few minutes
    cd tests && python -m precision mlp digits    # prints some rows
"""
