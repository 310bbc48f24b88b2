"""Loading: from a file, a module of PyTorch or a function of JAX to a checked model."""
