"""What a user looks at: explanations, reports, HTML, pictures and the command line."""
