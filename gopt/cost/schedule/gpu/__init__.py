"""The cost of a population of schedules as one GPU kernel."""
