"""Programs: a graph compiled by one engine. A model's run is one, and so is a recorded product."""
