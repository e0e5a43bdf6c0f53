"""XLA's fusion passes, and presets for the fusion search."""
