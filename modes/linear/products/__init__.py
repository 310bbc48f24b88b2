"""Products: J v recorded once as a graph, then executed by an engine as often as needed."""
