"""Derivatives: the flat steps between the tensors of `wrt` and `of`, at a point and at all."""
