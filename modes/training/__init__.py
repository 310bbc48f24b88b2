"""Training: the operators of `ai.onnx.preview.training` as plain nodes."""
