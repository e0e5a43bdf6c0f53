"""Exact solvers for recomputation under a memory budget: our model, MOCCASIN and Checkmate."""
