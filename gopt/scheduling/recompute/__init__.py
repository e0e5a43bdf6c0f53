"""Search for what to run again, so that a program fits into a budget of bytes."""
