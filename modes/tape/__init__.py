"""The tape: the steps that matter between some tensors and others, flat, with their blocks."""
