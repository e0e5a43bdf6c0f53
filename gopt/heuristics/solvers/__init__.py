"""External solvers: CP-SAT for whole schedules, METIS for placements."""
