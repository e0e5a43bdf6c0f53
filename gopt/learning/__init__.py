"""Parts that the learned systems share: losses, checkpoints, layers."""
