"""Naming: which tensors a derivative is between, and tangents and cotangents by name."""
