"""Agreement: every way to a product of a Jacobian gives the same numbers.

A trial makes a random typed ONNX graph, differentiates it in all the ways that the library has
(plain, planned, compiled, dense, sparse, at another point, exported, ...), and compares them with
one another, with an interpreter of the graph over torch tensors, and with central differences
where that has no kernel. What disagrees is shrunk to the smallest graph that still does.
"""
