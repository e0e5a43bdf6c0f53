"""External solvers: CP-SAT for whole schedules and recomputation, METIS for placements."""
