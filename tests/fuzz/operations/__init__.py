"""Random operations of JAX."""
