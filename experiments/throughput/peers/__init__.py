"""Peers of gopt: the same costs by other means, the same search by other packages."""
