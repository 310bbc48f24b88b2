"""Elimination: the DAG of operators made cheaper before products are taken with it."""
