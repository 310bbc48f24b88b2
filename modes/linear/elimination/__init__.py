"""Elimination: rewriting a DAG of operators so that products with it get cheaper."""
