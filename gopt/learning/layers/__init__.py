"""Neural network layers over graphs and sequences."""
