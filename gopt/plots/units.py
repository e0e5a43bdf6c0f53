"""Readable units: seconds and bytes with a suitable prefix."""

import re

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


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(text: str) -> int:
    """Return the bytes of a text such as `30 GiB` (2³⁰ bytes each) or `1.5 MB` (10⁶ bytes each).

    Raises:
      ValueError: the text is not a positive number with a unit.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(i?)b\s*", text, re.IGNORECASE)
    if found and not (found[3] and not found[2]):
        bytes = int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].lower()])
        if bytes > 0:
            return bytes
    raise ValueError(
        f"{text!r} is no number of bytes: expected a text such as '30 GiB' or '512 MB'"
    )
