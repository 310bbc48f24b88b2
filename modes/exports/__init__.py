"""Exports: derivatives as plain ONNX models that any runtime executes."""
