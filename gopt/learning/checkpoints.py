"""Checkpoints of training runs. Orbax is imported when it is needed."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gopt.files import write_whole

Tree = Any


class Checkpoints:
    """The checkpoints of one training run in a folder; the newest two are kept.

    The settings of the run are written beside them. A folder of other settings is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        """Open or make a folder.

        Args:
          folder: folder of the checkpoints.
          settings: JSON values that must be the same for a run to go on.

        Raises:
          ValueError: the folder holds the checkpoints of other settings.
        """
        import orbax.checkpoint as ocp

        path = Path(folder).resolve()
        record = path / "settings.json"
        settings = json.loads(json.dumps(settings))
        if record.exists():
            found = json.loads(record.read_text())
            for name in sorted(found.keys() | settings.keys()):
                if found.get(name) != settings.get(name):
                    raise ValueError(
                        f"{path} holds a run with {name} = {found.get(name)!r}: expected "
                        f"{settings.get(name)!r}; use another folder, or the old settings"
                    )
        else:
            with write_whole(record) as temporary:
                temporary.write_text(json.dumps(settings, indent=2))
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, create=True, enable_async_checkpointing=False
        )
        self._args = ocp.args
        self._manager = ocp.CheckpointManager(path / "steps", options=options)

    def restore(self, template: Tree) -> tuple[int, Tree]:
        """Return (step, state) of the newest checkpoint, or (0, template) without one.

        The arrays are NumPy arrays, so the computation that reads them chooses the device.
        """
        step = self._manager.latest_step()
        if step is None:
            return 0, template
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), template
        )
        state = self._manager.restore(step, args=self._args.StandardRestore(shapes))
        return step, jax.tree.map(np.asarray, state)

    def save(self, step: int, state: Tree) -> None:
        """Write a checkpoint, whole or not at all."""
        self._manager.save(step, args=self._args.StandardSave(state))
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Release files and threads."""
        self._manager.close()
