"""Costs of a population of schedules, computed by one GPU kernel."""
