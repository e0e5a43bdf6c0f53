"""Memory of training steps within budgets, beside `jax.checkpoint` and published rules."""
