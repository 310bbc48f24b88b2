"""Proofs: that every rule is the derivative, by SymPy, and ONNX's differentiability tags."""
