"""Preconditioners: cheap approximations of an inverse, made of what structure tells."""
