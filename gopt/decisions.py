"""Files of decisions: load what `Result.save` wrote."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gopt.fusion.plan import read_plan as read_fusion_plan
from gopt.host.files import parse_object
from gopt.result import FORMAT, Plan
from gopt.rewriting.plan import read_plan as read_rewrite_plan
from gopt.scheduling.plan import read_plan as read_schedule_plan

_READERS: dict[str, Callable[[dict[str, Any]], Plan]] = {
    "schedule": read_schedule_plan,
    "fuse": read_fusion_plan,
    "rewrite": read_rewrite_plan,
}


def load(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in a file that `Result.save` wrote; `apply(fn, *args)` applies it.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file holds no plan, or one of another version; or a field is of another type
        or out of range. The message names the field.
    """
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder: expected a file that Result.save wrote")
    content = Path(path).read_bytes()
    try:
        row = parse_object(content.decode())
        found, verb = row.pop("format", None), row.pop("verb", None)
        if type(found) is not int or found != FORMAT:
            raise ValueError(f"format is {found!r}: expected {FORMAT}")
        if not isinstance(verb, str) or verb not in _READERS:
            raise ValueError(f"verb is {verb!r}: expected one of {', '.join(_READERS)}")
        return _READERS[verb](row)
    except ValueError as error:
        raise ValueError(f"{path} is not a plan of gopt, format {FORMAT}: {error}") from error
