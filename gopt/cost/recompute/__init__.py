"""Costs of programs in which kernels may run more than once."""
