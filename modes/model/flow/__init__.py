"""Flow: what a model is made of: steps, control flow around them, sequences, opsets."""
