"""The slow tier of a test with parameters."""

from typing import Any

import pytest


def slow(*cases: Any) -> list[Any]:
    """Return cases that run with `--all` only; a tuple has the values of several parameters."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]
