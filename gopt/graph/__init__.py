"""Computation graphs as padded arrays: built, traced from equations, saved, loaded."""
