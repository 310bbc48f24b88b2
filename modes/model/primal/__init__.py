"""Primal: the model at a point, its inputs, and the values it computes from them."""
