"""Checks of the settings of learned systems: errors say the field, its value, and valid values."""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax

# Most layers, and the largest axis, of a network that settings may ask for.
MAX_LAYERS, MAX_SIZE = 100, 2**16


def check_types(kind: type, values: Mapping[str, Any]) -> None:
    """Check that values from a file have the types of the fields, and numbers are finite.

    Args:
      kind: class of settings, a dataclass.
      values: values of its fields, by name.

    Raises:
      ValueError: a value has another type, or is not finite, or an integer has more than 32 bits.
    """
    for name, declared in get_type_hints(kind).items():
        if name not in values:
            continue
        value = values[name]
        kind = declared
        many = get_origin(declared) is tuple
        if many:
            kind = get_args(declared)[0]
        elif get_origin(declared) is Literal:
            kind = str
        holds, expected = _TYPES[kind]
        parts = value if many and isinstance(value, tuple) else [value]
        if many != isinstance(value, tuple) or not all(map(holds, parts)):
            raise ValueError(
                f"{name} is {value!r}: expected {'a tuple of ' if many else ''}{expected}"
            )


def _is_finite(value: Any) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer above all floats
        return False


def _is_int32(value: Any) -> bool:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return is_whole and abs(int(value)) < 2**31


_TYPES: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (_is_int32, "a whole number of 32 bits"),
    float: (_is_finite, "a finite number"),
    bool: (lambda value: isinstance(value, bool), "True or False"),
    str: (lambda value: isinstance(value, str), "text"),
}


def check_numbers(
    settings: Any,
    *names: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> None:
    """Check that fields are finite and within bounds, and whole numbers if declared as `int`.

    Traced values cannot be checked, and are not.

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
        if isinstance(value, jax.core.Tracer):  # training anneals some of them
            continue
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
