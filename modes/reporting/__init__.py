"""What the command line prints, and the random point it prints it for."""
