"""Learned local advantage functions, on model families that they were not trained on."""
