"""The cost of a fusion."""
