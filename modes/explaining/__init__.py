"""What a Jacobian is made of, what became of it, and what was met at the point."""
