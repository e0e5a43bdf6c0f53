"""GO, one policy for placement, scheduling and fusion, compared with other methods."""
