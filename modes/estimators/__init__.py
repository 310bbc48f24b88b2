"""Estimators: what a few products tell of an operator, and what its structure tells exactly."""
