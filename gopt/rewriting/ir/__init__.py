"""Programs as terms: from a program, and back to a function."""
