"""The cost of a fusion: kernels, and the time they take."""
