"""Show: explanations, reports, HTML, pictures and the command line."""
