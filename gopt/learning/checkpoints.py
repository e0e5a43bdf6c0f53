"""Checkpoints of training runs. Orbax is imported when it is needed."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gopt.host.files import write_whole

Tree = Any


class Checkpoints:
    """The checkpoints of one training run in a folder; the newest two are kept.

    The settings of the run are written beside them. A folder of other settings is refused, and so
    is one that is in use, by this process or another. A killed process leaves no lock.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        """Open or make a folder.

        Args:
          folder: folder of the checkpoints.
          settings: JSON values that must be the same for a run to go on.

        Raises:
          ValueError: the folder holds the checkpoints of other settings, or is in use.
        """
        import orbax.checkpoint as ocp

        path = Path(folder).resolve()
        path.mkdir(parents=True, exist_ok=True)
        self._args, self._path = ocp.args, path
        self._lock = _locked(path)
        try:
            _check_settings(path, json.loads(json.dumps(settings)))
            options = ocp.CheckpointManagerOptions(
                max_to_keep=2, create=True, enable_async_checkpointing=False
            )
            self._manager = ocp.CheckpointManager(path / "steps", options=options)
        except BaseException:
            self._lock.close()
            raise

    def restore(self, template: Tree) -> tuple[int, Tree]:
        """Return (step, state) of the newest checkpoint, or (0, template) without one.

        The arrays are NumPy arrays, so the computation that reads them chooses the device.

        Raises:
          ValueError: the checkpoint holds other arrays.
        """
        step = self._manager.latest_step()
        if step is None:
            return 0, template
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), {"state": template}
        )
        try:
            found = self._manager.restore(step, args=self._args.StandardRestore(shapes))
        except ValueError as error:
            raise ValueError(
                f"{self._path} holds a checkpoint with other arrays, or of gopt 0.1: use another "
                f"folder ({error})"
            ) from error
        return step, jax.tree.map(np.asarray, found["state"])

    def save(self, step: int, state: Tree) -> None:
        """Write a checkpoint, whole or not at all."""
        self._manager.save(step, args=self._args.StandardSave({"state": state}))
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Release files, threads and the lock."""
        try:
            self._manager.close()
        finally:
            self._lock.close()


def _locked(folder: Path) -> sqlite3.Connection:
    """Return the lock of a folder, held until it is closed or this process ends.

    SQLite locks files on every system, without a file that would have to be removed.
    """
    lock = sqlite3.connect(
        folder / "lock.sqlite", timeout=0, isolation_level=None, check_same_thread=False
    )
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise OSError(f"{folder}/lock.sqlite: {error}") from error
        raise ValueError(
            f"{folder} is in use by another training run: wait for its end, or use another folder"
        ) from error
    return lock


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a new folder; refuse a folder of other settings."""
    record = folder / "settings.json"
    if not record.exists():
        with write_whole(record) as temporary:
            temporary.write_text(json.dumps(settings, indent=2))
        return
    found = json.loads(record.read_text())
    for name in sorted(found.keys() | settings.keys()):
        if found.get(name) != settings.get(name):
            raise ValueError(
                f"{folder} holds a run with {name} = {found.get(name)!r}: expected "
                f"{settings.get(name)!r}; use another folder, or the old settings"
            )
