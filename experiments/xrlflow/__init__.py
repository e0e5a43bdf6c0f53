"""X-RLflow against the searches that it is compared with."""
