"""Costs of rewritten programs: per op, per rewrite, and measured."""
