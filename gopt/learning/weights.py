"""Trained parameters as files: one format for all learned systems.

A file is an `.npz` with an array for each parameter, named by its path, and one JSON record: the
system, the version of its parameters, its settings by field, the features and op kinds that it
reads, and how it was trained.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.graph import Graph, Op, from_ops
from gopt.host.files import parse_object, read_arrays, write_whole
from gopt.learning.settings import check_types

Tree = Any
_RECORD = "gopt.weights"  # name of the JSON record among the arrays
_MAX_DEVICES = 1024


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
            expected_types = _types(jax.eval_shape(init))
        except Exception as error:  # parameters of another network raise errors of any kind
            raise ValueError(f"{path} holds parameters of another network: {error}") from error
        _check_types(path, _types(params), expected_types)
        return params, settings

    def origin(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return how the parameters of a file were trained, as `save` recorded it.

        Args:
          path: as in `load`.

        Raises:
          ValueError: no such policy ships, or the file is truncated or foreign.
          FileNotFoundError: the file does not exist.
        """
        path = self.find(path)
        found = load_weights(path)[1].get("origin", {})
        if not isinstance(found, dict):
            raise ValueError(f"{path} has origin {found!r}: expected an object")
        return found

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
            check_types(self.settings, found)
            settings = self.settings(**found)
            missing = {field.name for field in dataclasses.fields(settings)} - set(found)
            if missing:
                raise KeyError(*missing)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} holds no settings of {self.system}: {error}") from error
        return settings


def one_op(devices: int = 1) -> tuple[Graph, Problem]:
    """Return the smallest graph and its scheduling problem, for `Format.smallest`.

    Raises:
      ValueError: the number of devices is not one of a machine.
    """
    if not 1 <= devices <= _MAX_DEVICES:
        raise ValueError(f"the policy is for {devices} devices: expected 1..{_MAX_DEVICES}")
    graph = from_ops([Op()])
    return graph, prepare(graph, unit_rate_devices(devices))


def save_weights(path: str | os.PathLike[str], params: Tree, record: Mapping[str, Any]) -> None:
    """Write a nested dict of arrays and a JSON record to one `.npz`, whole or not at all."""
    arrays: dict[str, Any] = {_RECORD: np.str_(json.dumps(record, allow_nan=False))}
    for name, leaf in traverse_util.flatten_dict(params, sep="/").items():
        arrays[name] = np.asarray(leaf)
    with write_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def load_weights(path: str | os.PathLike[str]) -> tuple[Tree, dict[str, Any]]:
    """Return the parameters and the record that `save_weights` wrote.

    Raises:
      ValueError: the file is truncated, holds no weights of gopt, or a parameter is not finite.
      FileNotFoundError: the file does not exist.
    """
    try:
        arrays = read_arrays(path)
        if _RECORD not in arrays:
            raise ValueError(f"it has no record {_RECORD!r}")
        text = arrays.pop(_RECORD)
        if text.dtype.kind != "U" or text.ndim != 0:
            raise ValueError(f"record {_RECORD!r} is no text")
        record = parse_object(str(text))
        for name, array in arrays.items():
            _check_finite(name, array)
        if _conflicts(arrays):
            raise ValueError(f"parameter {_conflicts(arrays)[0]!r} is in others")
        return traverse_util.unflatten_dict(arrays, sep="/"), record
    except ValueError as error:
        raise ValueError(f"{path} does not hold weights that gopt saved: {error}") from error


def _check_finite(name: str, array: np.ndarray) -> None:
    """Check that a parameter has numbers, and all of them are finite."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}: expected numbers")
    finite = np.isfinite(array)
    if not finite.all():
        index = tuple(map(int, np.argwhere(~finite)[0]))
        raise ValueError(f"{name}{list(index)} is {array[index]}: expected a finite number")


def _conflicts(names: Iterable[str]) -> list[str]:
    """Return the names that are also the start of paths of others."""
    names = set(names)
    starts = {name[:at] for name in names for at, c in enumerate(name) if c == "/"}
    return sorted(names & starts)


def _types(params: Tree) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return the shape and dtype of each parameter, by its path."""
    flat = traverse_util.flatten_dict(params, sep="/")
    return {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in flat.items()}


def _check_types(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Check shapes and dtypes. A file of 32 bits also fits where JAX makes 64 bits."""
    wrong = sorted(found.keys() ^ expected.keys())
    for name in sorted(found.keys() & expected.keys()):
        (shape, dtype), (other, wide) = found[name], expected[name]
        narrow = np.dtype(f"{wide.kind}4") if wide.itemsize == 8 else wide
        if shape != other or dtype not in (wide, narrow):
            wrong.append(name)
    if wrong:
        name = wrong[0]
        shown = [
            f"shape {types[name][0]} and dtype {types[name][1]}" if name in types else "nothing"
            for types in (found, expected)
        ]
        raise ValueError(
            f"{path} holds parameters of other shapes than its settings say: {name} has "
            f"{shown[0]}, expected {shown[1]}"
        )


def _as_tuple(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
