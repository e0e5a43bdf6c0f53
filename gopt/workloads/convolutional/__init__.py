"""Convolutional image classifiers."""
