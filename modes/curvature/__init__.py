"""Curvature: second-order operators, composed of J and of derivatives of the loss."""
