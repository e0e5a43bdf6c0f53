"""XLA passes that change a graph before fusion."""
