"""Training checkpoints, and weights that ship as one file. Orbax is imported when it is needed."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gopt.files import write_whole

Tree = Any


class Checkpoints:
    """The checkpoints of one training run in a folder; the newest few are kept.

    The settings of the run are written beside them: a folder of other settings is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        """Opens or makes a folder.

        Args:
          folder: where the checkpoints are.
          settings: what must be the same for a run to go on, as JSON values.

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
        """Returns (step, state) of the newest checkpoint, or (0, template) if there is none.

        The arrays are NumPy's: where they go is left to the computation that takes them.
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
        """Writes a checkpoint, whole or not at all."""
        self._manager.save(step, args=self._args.StandardSave(state))
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Releases what the checkpoints hold."""
        self._manager.close()


def save_weights(path: str | os.PathLike[str], weights: Tree, settings: dict[str, Any]) -> None:
    """Writes a nested dict of arrays and its settings to one `.npz`, whole or not at all."""
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    arrays: dict[str, Any] = {"gopt.weights": np.str_(json.dumps(settings))}
    for folders, leaf in leaves:
        arrays["/".join(str(key.key) for key in folders)] = np.asarray(leaf)
    with write_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def load_weights(path: str | os.PathLike[str]) -> tuple[Tree, dict[str, Any]]:
    """Returns the (weights, settings) that `save_weights` wrote.

    Raises:
      ValueError: the file is truncated, or holds no weights of gopt.
    """
    weights: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            if "gopt.weights" not in archive:
                raise ValueError("it has no settings")
            settings = json.loads(str(archive["gopt.weights"]))
            for name in set(archive.files) - {"gopt.weights"}:
                *folders, leaf = name.split("/")
                node = weights
                for folder in folders:
                    node = node.setdefault(folder, {})
                node[leaf] = archive[name]
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} does not hold weights that gopt saved: {error}") from error
    return weights, settings


def check_weights(
    path: str | os.PathLike[str],
    what: str,
    values: Mapping[str, Any],
    known: Mapping[str, Any],
) -> None:
    """Checks that a file of weights was written by code that reads and says the same.

    Args:
      path: of the file, for the message.
      what: it holds, "a policy", say.
      values: the settings that `load_weights` returned.
      known: what must be among them.

    Raises:
      ValueError: something is not; the message names it.
    """
    for name, value in known.items():
        if values.get(name) != json.loads(json.dumps(value)):  # JSON has no tuples
            raise ValueError(f"{path} holds {what} for other {name} than this version of gopt")


def check_shapes(path: str | os.PathLike[str], params: Tree, init: Callable[[], Tree]) -> None:
    """Checks that parameters have the shapes of those that `init` returns; it is not run.

    Raises:
      ValueError: they have not.
    """
    if jax.tree.map(np.shape, params) != jax.tree.map(lambda x: x.shape, jax.eval_shape(init)):
        raise ValueError(f"{path} holds parameters of other shapes than its settings say")
