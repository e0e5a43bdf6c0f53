"""A JAX function as a flat list of equations, and back."""
