"""X-RLflow, compared with other searches."""
