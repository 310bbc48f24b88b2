"""Precision: the errors of single precision, on every network of this repository.

For each network at its stored point: the relative errors ‖Δ‖ / ‖exact‖ of J v and Jᵀ u in float32,
where exact is the same product in float64, and the residual of the dot test. Both precisions use
the same weights, point and vectors, all representable in float32.

    cd tests && python -m precision               # a few minutes; writes docs/results/precision.md
    cd tests && python -m precision mlp digits    # prints some rows
    cd tests && python -m precision operators     # writes the section on operators alone
"""
