"""Primal: the model at a point, its inputs, the values it computes from them, and the engines."""
