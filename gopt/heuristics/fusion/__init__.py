"""XLA's fusion passes, and presets of the fusion search."""
