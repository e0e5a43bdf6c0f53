"""Store rows, figures and settings of a run in its folder, with versions and conditions."""

import dataclasses
import importlib.metadata
import io
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from experiments.harness.command_line import UsageError
from gopt.host.files import write_whole
from gopt.measure.rows import Rows
from gopt.measure.timing import conditions


class Store:
    """Rows of a table in one file, so that an interrupted run makes only missing ones.

    All rows have the same settings and `gopt.measure.timing.conditions`. Each has the versions that
    made it, and rows of other versions are kept.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]):
        """Open a file, or create it.

        Args:
          path: file of the rows, see `gopt.measure.rows.Rows`.
          about: settings that its rows share, as JSON values.

        Raises:
          UsageError: the file has rows of other settings or conditions, or is not a file of rows.
        """
        old = [each for each in (path.with_suffix(""), path.with_suffix(".npz")) if each.exists()]
        if old:
            raise UsageError(f"{old[0]} has rows of version 0.1: use another folder")
        try:
            about = _plain_values({**about, "conditions": conditions()})
            self._rows = Rows(path, about, "rows")
        except ValueError as error:
            raise UsageError(str(error)) from error

    def row(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a row of JSON values; a missing one is made and written first."""

        def plain() -> Any:
            return _plain_values({"versions": versions(), "row": make()}, _plain)

        return self._stored(name, plain)["row"]

    def arrays(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Return arrays by name; missing ones are made and written first."""

        def compressed() -> bytes:
            file = io.BytesIO()
            np.savez_compressed(file, allow_pickle=False, **make(), versions=json.dumps(versions()))
            return file.getvalue()

        with np.load(io.BytesIO(self._stored(name, compressed)), allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files if key != "versions"}

    def _stored(self, name: str, make: Callable[[], Any]) -> Any:
        if self._rows.read(name) is None:
            self._rows.add(name, make())
        return self._rows.read(name)  # another process can have been first


def collect(
    settings: Any, file: str, rows: Mapping[str, Callable[[], Any]], *others: str
) -> list[Any]:
    """Return the rows of a table; rows missing from the settings' folder are made first.

    Each row is written as soon as it is done. All rows so far are also in one file for readers. The
    settings are saved, too.

    Args:
      settings: dataclass with a `folder`.
      file: name of the file with all rows.
      rows: functions that make a row of JSON values, or a list of rows, by name.
      *others: names of settings that may differ between rows of one folder.
    """
    save_settings(settings.folder, settings)
    store = Store(settings.folder / "rows.sqlite", described(settings, *others))
    found = list[Any]()
    for name, make in track(rows.items(), "rows", len(rows)):
        row = store.row(name, make)
        found += row if isinstance(row, list) else [row]
        save_json(settings.folder / file, found)
    return found


def described(settings: Any, *others: str) -> dict[str, Any]:
    """Return settings as JSON values, without their folder and other named ones."""
    plain: dict[str, Any] = _plain_values(dataclasses.asdict(settings))
    return {name: value for name, value in plain.items() if name not in (*others, "folder")}


def _plain_values(tree: Any, default: Callable[[Any], Any] = str) -> Any:
    return json.loads(json.dumps(tree, default=default))


def versions() -> dict[str, str]:
    """Return the versions and the machine that figures depend on."""
    names = ("gopt-jax", "jax", "jaxlib", "flax", "optax", "jraph", "numpy")
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return {
        **found,
        "revision": _revision(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _revision() -> str:
    """Return the commit of this code, marked if tracked files were changed."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    here = Path(__file__).parent
    try:
        found = subprocess.run(describe, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # not a checkout, or git is missing
    return found.stdout.strip()


def save_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, default=_plain) + "\n")


def save_settings(folder: Path, settings: Any) -> None:
    """Write the settings of a run and the versions it ran with to `settings.json`."""
    save_json(folder / "settings.json", {**dataclasses.asdict(settings), "versions": versions()})


def origin(settings: Any, **more: Any) -> dict[str, Any]:
    """Return the origin of a result as JSON values: settings, further values, versions."""
    return dict(_plain_values({**dataclasses.asdict(settings), **more, "versions": versions()}))


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        array = np.asarray(value)
        if array.dtype.kind == "f":
            is_known = np.isfinite(array)
            array = array.astype(object)
            array[~is_known] = None  # JSON cannot hold infinite numbers
        return array.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")
