"""Implicit: tensors that equations define, roots and trajectories, with their derivatives."""
