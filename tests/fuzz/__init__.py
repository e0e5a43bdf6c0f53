"""Fuzzers: random programs, changed files and killed processes."""
