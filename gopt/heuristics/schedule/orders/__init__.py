"""Orders of ops on one device with low peak memory."""
