"""Peers of gopt: the same costs by other means, and the same search by other packages."""
