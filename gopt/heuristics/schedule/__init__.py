"""Heuristic schedules: orders, placements, bounds, and their keys."""
