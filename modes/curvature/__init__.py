"""Curvature: second-order operators, composed of J and of what the loss says."""
