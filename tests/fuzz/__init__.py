"""Fuzzers: short in the test suite, longer by hand."""
