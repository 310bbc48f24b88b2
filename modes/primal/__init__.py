"""The model at a point: what is given, what it computes there, by which engine."""
