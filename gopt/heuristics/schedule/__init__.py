"""Heuristic schedules: orders, placements, lower bounds and their keys."""
