"""Files of decisions: load what `Result.save` wrote."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gopt.fusion.plan import read_plan as read_fusion_plan
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
      ValueError: the file holds no plan, or one of another version.
    """
    try:
        row = json.loads(Path(path).read_text())
        if row.pop("format") != FORMAT:
            raise ValueError("another version")
        verb = row.pop("verb")
        if verb not in _READERS:
            raise ValueError(f"verb is {verb!r}: expected one of {', '.join(_READERS)}")
        return _READERS[verb](row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a plan of gopt, format {FORMAT}: {error}") from error
