"""Rules for what to run again: published ones and simple ones, without a search."""
