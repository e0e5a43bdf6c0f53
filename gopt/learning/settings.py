"""Checks of the settings of learned systems: errors say the field, its value, and valid values."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


def check_numbers(
    settings: Any,
    *names: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> None:
    """Check that fields are finite and within bounds, and whole numbers if declared as `int`.

    Args:
      settings: dataclass of settings.
      names: names of fields.
      at_least: smallest valid value.
      above: number that is less than all valid values.
      at_most: largest valid value.
      below: number that is more than all valid values.

    Raises:
      ValueError: a field has another value.
    """
    bounds = [
        ("{} at least", at_least, operator.ge),
        ("more than {}", above, operator.gt),
        ("{} at most", at_most, operator.le),
        ("less than {}", below, operator.lt),
    ]
    given = [
        (text.format(bound), bound, holds) for text, bound, holds in bounds if bound is not None
    ]
    expected = " and ".join(text for text, _, _ in given) or "a finite number"
    types = {field.name: field.type for field in dataclasses.fields(settings)}
    for name in names:
        value = getattr(settings, name)
        if types[name] is int and not isinstance(value, Integral):
            raise ValueError(f"{name} is {value}: expected a whole number, {expected}")
        is_number = isinstance(value, Real) and math.isfinite(value)
        if not is_number or not all(holds(value, bound) for _, bound, holds in given):
            raise ValueError(f"{name} is {value}: expected {expected}")


def check_choice(settings: Any, name: str, known: Sequence[str]) -> None:
    """Check that a field has one of the known values.

    Raises:
      ValueError: it has another value.
    """
    value = getattr(settings, name)
    if value not in known:
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(known)}")
