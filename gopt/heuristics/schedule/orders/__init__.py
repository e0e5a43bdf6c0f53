"""Orders of ops on one device, for peak memory."""
