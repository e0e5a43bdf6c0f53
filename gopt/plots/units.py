"""Readable units: seconds and bytes with a suitable prefix."""

_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_SIZES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the largest unit that does not exceed a time, and its length in s."""
    return next((unit for unit in _TIMES if seconds >= unit[1]), _TIMES[-1])


def memory_unit(num_bytes: float) -> tuple[str, float]:
    """Return the largest unit that does not exceed a size, and its length in bytes."""
    return next((unit for unit in _SIZES if num_bytes >= unit[1]), _SIZES[-1])


def format_seconds(seconds: float) -> str:
    """Return a time with its unit, such as `1.234 ms`."""
    name, unit = time_unit(seconds)
    return f"{seconds / unit:.3f} {name}"


def format_bytes(num_bytes: float) -> str:
    """Return a size with its unit, such as `1.50 MiB`; bytes are whole."""
    name, unit = memory_unit(num_bytes)
    return f"{num_bytes:.0f} B" if unit == 1 else f"{num_bytes / unit:.2f} {name}"
