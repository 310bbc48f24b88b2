"""The vocabulary of the workloads, in ONNX, in JAX and in PyTorch.

Each module has the same functions; `+ - * @`, slices and `reshape` are methods of the values.
"""
