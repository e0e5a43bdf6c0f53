"""The cost of a schedule: makespan and peak memory."""
