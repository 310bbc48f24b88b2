"""Tape: the flat steps between the tensors of `wrt` and `of`, with their Jacobian blocks."""
