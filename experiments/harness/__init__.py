"""Shared parts of the experiments: command line, store, runs, statistics, tables, plots, cases."""
