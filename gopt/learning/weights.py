"""Trained parameters as files: one format for all learned systems.

A file is an `.npz` with an array for each parameter, named by its path, and one JSON record: the
system, the version of its parameters, its settings by field, the features and op kinds that it
reads, and how it was trained.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.files import write_whole
from gopt.graph.graph import Graph, Op, from_ops

Tree = Any
_RECORD = "gopt.weights"  # name of the JSON record among the arrays


@dataclasses.dataclass(frozen=True)
class Format:
    """The format of weights of one learned system: it writes, checks and finds files.

    Attributes:
      system: name of the system.
      version: version of the meaning of its parameters; files of another version are refused.
      settings: class of its settings, a frozen dataclass of JSON values and tuples.
      reads: other values that the parameters depend on, as JSON values by name, such as features
        and op kinds. Files with other values are refused.
      init: function of the system that makes parameters, from a key and inputs. It is traced and
        never run.
      smallest: maps the settings and parameters of a file to inputs that give `init` its shapes.
      shipped: files that ship with gopt, by label. The first one is the default.
    """

    system: str
    version: int
    settings: type
    reads: Mapping[str, Any]
    init: Callable[..., Tree]
    smallest: Callable[[Any, Tree], Any]
    shipped: Mapping[str, Path] = dataclasses.field(default_factory=dict)

    def save(
        self,
        path: str | os.PathLike[str],
        params: Tree,
        settings: Any,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        """Write parameters to one `.npz`, whole or not at all.

        Args:
          path: the file.
          params: nested dict of arrays.
          settings: the settings of the policy.
          origin: how it was trained, as JSON values, for readers of the file.
        """
        self.save_labelled(path, params, settings, origin, {})

    def save_labelled(
        self,
        path: str | os.PathLike[str],
        params: Tree,
        settings: Any,
        origin: Mapping[str, Any] | None,
        labels: Mapping[str, Any],
    ) -> None:
        """Write parameters like `save`, with JSON values that `load_labelled` compares."""
        record = {"system": self.system, "version": self.version, **self.reads, **labels}
        record |= {"settings": dataclasses.asdict(settings), "origin": dict(origin or {})}
        save_weights(path, params, record)

    def load(self, path: str | os.PathLike[str] | None = None) -> tuple[Tree, Any]:
        """Return the parameters and settings of a file.

        Args:
          path: a file of `save`, or the label of a file that ships; by default the first of these.

        Raises:
          ValueError: `path` is `None` and no policy ships; or the file is truncated, or of another
            system, version or shape.
          FileNotFoundError: it is neither a file nor the label of a policy that ships.
        """
        return self.load_labelled(path, {})

    def load_labelled(
        self, path: str | os.PathLike[str] | None, labels: Mapping[str, Any]
    ) -> tuple[Tree, Any]:
        """Return parameters and settings like `load`, of a file with the same labels."""
        path = self.find(path)
        params, record = load_weights(path)
        expected = {"system": self.system, **labels, "version": self.version}
        for name, value in expected.items():
            if record.get(name) != value:
                raise ValueError(
                    f"{path} holds weights with {name} {record.get(name)!r}: expected {value!r}"
                )
        for name, value in self.reads.items():
            if record.get(name) != json.loads(json.dumps(value)):  # JSON has no tuples
                raise ValueError(f"{path} holds weights for other {name} than this version of gopt")
        settings = self._settings(path, record)
        try:
            inputs = self.smallest(settings, params)
            init = partial(self.init, jax.random.key(0), inputs, settings=settings)
            has_shapes = _shapes(params) == _shapes(jax.eval_shape(init))
        except (KeyError, IndexError, ValueError):  # parameters of another network
            has_shapes = False
        if not has_shapes:
            raise ValueError(f"{path} holds parameters of other shapes than its settings say")
        return params, settings

    def origin(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return how the parameters of a file were trained, as `save` recorded it.

        Args:
          path: as in `load`.

        Raises:
          ValueError: no such policy ships, or the file is truncated or foreign.
          FileNotFoundError: the file does not exist.
        """
        return dict(load_weights(self.find(path))[1].get("origin", {}))

    def find(self, path: str | os.PathLike[str] | None) -> Path:
        """Return the file of a path, the shipped file of a label, or the default one.

        Raises:
          ValueError: gopt ships no weights for the system.
        """
        if path is None and not self.shipped:
            raise ValueError(f"path is None: expected a file, gopt ships no {self.system} policy")
        if path is None:
            return next(iter(self.shipped.values()))
        return self.shipped.get(str(path), Path(path))

    def _settings(self, path: Path, record: Mapping[str, Any]) -> Any:
        """Return the settings of a record; each field must be in it."""
        try:
            found = {name: _as_tuple(value) for name, value in record["settings"].items()}
            settings = self.settings(**found)
            missing = {field.name for field in dataclasses.fields(settings)} - set(found)
            if missing:
                raise KeyError(*missing)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} holds no settings of {self.system}: {error}") from error
        return settings


def one_op(devices: int = 1) -> tuple[Graph, Problem]:
    """Return the smallest graph and its scheduling problem, for `Format.smallest`."""
    graph = from_ops([Op()])
    return graph, prepare(graph, unit_rate_devices(devices))


def save_weights(path: str | os.PathLike[str], params: Tree, record: Mapping[str, Any]) -> None:
    """Write a nested dict of arrays and a JSON record to one `.npz`, whole or not at all."""
    arrays: dict[str, Any] = {_RECORD: np.str_(json.dumps(record))}
    for name, leaf in traverse_util.flatten_dict(params, sep="/").items():
        arrays[name] = np.asarray(leaf)
    with write_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def load_weights(path: str | os.PathLike[str]) -> tuple[Tree, dict[str, Any]]:
    """Return the parameters and the record that `save_weights` wrote.

    Raises:
      ValueError: the file is truncated, or holds no weights of gopt.
      FileNotFoundError: the file does not exist.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            if _RECORD not in archive:
                raise ValueError(f"it has no record {_RECORD!r}")
            record = json.loads(str(archive[_RECORD]))
            arrays = {name: archive[name] for name in archive.files if name != _RECORD}
            return traverse_util.unflatten_dict(arrays, sep="/"), record
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} does not hold weights that gopt saved: {error}") from error


def _shapes(params: Tree) -> Tree:
    return jax.tree.map(np.shape, params)


def _as_tuple(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
