"""Placements of ops on several devices, for time and memory."""
