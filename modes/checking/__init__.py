"""Checking: tests of a Jacobian, on its own and against its model."""
