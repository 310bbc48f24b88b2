"""Sensitivities: what rounding or removing weights costs in the loss."""
