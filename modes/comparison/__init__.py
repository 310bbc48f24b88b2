"""Comparison: a model beside its optimised, quantised or converted twin."""
