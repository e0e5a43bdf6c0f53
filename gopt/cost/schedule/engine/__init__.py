"""Event-driven simulation of a schedule, as loops over scalars."""
