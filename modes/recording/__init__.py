"""Recording: derivatives as graphs, which hold at other points and sizes."""
