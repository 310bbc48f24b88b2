"""Training inside ONNX: the operators of `ai.onnx.preview.training` as plain nodes."""
