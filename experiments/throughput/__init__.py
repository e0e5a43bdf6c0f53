"""Candidates per second that gopt costs, beside a compiled decoder and other libraries."""
