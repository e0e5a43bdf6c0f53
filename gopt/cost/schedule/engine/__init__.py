"""The event-driven simulation behind the cost of a schedule, as scalar loops."""
