"""Rewrite rules: the table, patterns, and matches in a program."""
