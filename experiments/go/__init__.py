"""GO: one policy for placement, scheduling and fusion, and what it is compared with."""
