"""Store rows, figures and settings of a run in its folder, with versions and conditions."""

import dataclasses
import importlib.metadata
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
from gopt.files import write_whole
from gopt.measure.timing import conditions


class Store:
    """Rows of a table, each in its own file, so that an interrupted run makes only missing ones.

    Each file names the settings, the `gopt.measure.timing.conditions` and the versions of its row.
    Rows of other versions are kept.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        """Open a folder.

        Args:
          folder: folder of the files.
          about: settings that its rows share, as JSON values.

        Raises:
          UsageError: the folder has a row of other settings or conditions.
        """
        self._folder = folder
        self._about = _plain_values({**about, "conditions": conditions()})
        for path in sorted(folder.glob("*.json")):
            self._check(path, json.loads(path.read_text())["about"])

    def row(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a row of JSON values from its file; a missing one is made and written first."""
        path = self._folder / f"{name}.json"
        if not path.exists():
            made = {"about": self._about, "versions": versions(), "row": make()}
            save_json(path, made)
        return json.loads(path.read_text())["row"]

    def arrays(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Return arrays by name; missing ones are made and written first.

        Raises:
          UsageError: the file is about something else, or unreadable.
        """
        path = self._folder / f"{name}.npz"
        words = {"about": self._about, "versions": versions()}
        if not path.exists():
            arrays = {key: np.asarray(value) for key, value in make().items()}
            texts = {key: json.dumps(value) for key, value in words.items()}
            with write_whole(path) as temporary, open(temporary, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays, **texts)
            return arrays
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                arrays = {key: file[key] for key in file.files if key not in words}
        except Exception as error:
            raise UsageError(f"{path} is unreadable: {error}") from error
        self._check(path, about)
        return arrays

    def _check(self, path: Path, about: Mapping[str, Any]) -> None:
        for name in sorted(about.keys() | self._about.keys()):
            if about.get(name) != self._about.get(name):
                raise UsageError(
                    f"{path} is of other settings or conditions, {name} = {about.get(name)!r}: "
                    f"expected {self._about.get(name)!r}; use another folder, or the old settings"
                )


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
    store = Store(settings.folder / "rows", described(settings, *others))
    found = list[Any]()
    for name, make in track(rows.items(), "rows", len(rows)):
        row = store.row(name.replace("/", "-"), make)
        found += row if isinstance(row, list) else [row]
        save_json(settings.folder / file, found)
    return found


def described(settings: Any, *others: str) -> dict[str, Any]:
    """Return settings as JSON values, without their folder and other named ones."""
    plain: dict[str, Any] = _plain_values(dataclasses.asdict(settings))
    return {name: value for name, value in plain.items() if name not in (*others, "folder")}


def _plain_values(tree: Any) -> Any:
    return json.loads(json.dumps(tree, default=str))


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
