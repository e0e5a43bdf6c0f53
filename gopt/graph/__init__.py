"""Computation graphs as padded arrays: build, trace from equations, save, load."""
