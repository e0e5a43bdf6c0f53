"""Shared parts of the experiments: command line, store, runs, reports, tables, plots, graphs."""
