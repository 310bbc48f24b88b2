"""Model: an ONNX file becomes something that runs, within limits.

`loading` reads a file, `flow` holds its steps, and `primal` runs the steps with an engine. The
files beside these folders serve every folder of `modes/`.
"""
