"""The cost of a schedule and a fusion together."""
