"""Agreement: every way to compute a product with a Jacobian gives the same numbers.

A trial generates a random typed ONNX graph, differentiates it in every way the library offers
(plain, planned, compiled, dense, sparse, at another point, exported, ...), and compares the results
with one another, with an interpreter of the graph over torch tensors, and with central differences
where the interpreter has no kernel. A case that disagrees is shrunk to the smallest failing graph.
"""
