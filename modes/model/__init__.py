"""Model: an ONNX file becomes something that runs, within limits.

`loading` reads a file, `flow` holds its steps, `programs` compiles graphs, by an engine each, and
`primal` runs the model. The files beside these folders serve every folder of `modes/`.
"""
