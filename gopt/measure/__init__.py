"""Measurements: run times, memory, equality of outputs."""
