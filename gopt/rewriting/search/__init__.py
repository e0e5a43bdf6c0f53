"""Searches over rewritten programs: TASO, PET and equality saturation."""
