"""Measure candidates per second: gopt, a compiled decoder and other libraries."""
