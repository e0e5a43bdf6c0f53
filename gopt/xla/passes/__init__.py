"""Passes of XLA that change a graph before it is fused."""
