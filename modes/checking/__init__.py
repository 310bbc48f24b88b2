"""Checking: what anybody can verify of a Jacobian, alone and beside its model."""
