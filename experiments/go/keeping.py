"""Figures that took long to find, kept in files with what they are of, so that nothing is lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments import common
from gopt.files import write_whole


def kept(
    path: Path, about: dict[str, Any], make: Callable[[], dict[str, Any]]
) -> dict[str, np.ndarray]:
    """Returns arrays by name: those that an earlier call saved in the file, or those made now.

    Args:
      path: of the file, in which arrays, what they are of, and versions are saved.
      about: what they are of, as JSON values.
      make: what is called if there is no file; as many arrays as it has names.

    Raises:
      ValueError: the file is about something else, or cannot be read.
    """
    about = json.loads(json.dumps(about))
    if path.exists():
        return _read(path, about)
    arrays = {name: np.asarray(value) for name, value in make().items()}
    words = {"about": json.dumps(about), "versions": json.dumps(common.versions())}
    with write_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, **words)
    return arrays


def _read(path: Path, about: dict[str, Any]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            had = json.loads(str(file["about"]))
            arrays = {name: file[name] for name in file.files if name not in ("about", "versions")}
    except Exception as error:
        raise ValueError(f"{path} does not hold what was found: {error}") from error
    for name in sorted(had.keys() | about.keys()):
        if had.get(name) != about.get(name):
            raise ValueError(
                f"{path} is about {name} = {had.get(name)!r}: expected {about.get(name)!r}; use "
                "another folder, or the old settings"
            )
    return arrays
