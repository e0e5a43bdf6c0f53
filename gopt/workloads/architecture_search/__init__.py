"""Networks from architecture search and random networks."""
