"""Engines: ONNX Runtime, PyTorch, and the readings of the vocabulary, which run a model."""
