"""What a configuration takes for real: each kernel is compiled and timed once, and never again.

Configurations that a search tries share nearly all of their kernels. So the time of one is the sum
of the times of its kernels, of which few are new.
"""

import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.extend.core import JaxprEqn

from gopt.cost.cells import check_units
from gopt.equations import shape_of, variables
from gopt.files import write_whole
from gopt.fusion.programs import apart, kernel_of
from gopt.kernels.grouping import Group, group
from gopt.kernels.labels import read
from gopt.measure import cores, processor, typical
from gopt.program import Program

# Of how kernels are timed. Since 2, those of opaque ops are no calls; since 3, new ones take turns.
_VERSION = 3
_TURN = 2e-3  # s, what is timed at once at least
_COPIES = 4  # of a kernel in one program, so that what it takes to call the program counts little


class KernelTimes:
    """The times of kernels on this CPU, by what they compute.

    Attributes:
      seconds: of each kernel, by its text; infinite if it failed.
      failures: why, by the same.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        turns: int = 12,
        longest: float = 10.0,
    ) -> None:
        """Reads what was measured before.

        Args:
          path: where each time is written as soon as it is known, a line of JSON each, after one
            that says what they depend on; by default nowhere.
          turns: how often each kernel is timed, see `gopt.measure.typical`.
          longest: a kernel that takes longer is not timed again, and counts as failed, in s.

        Raises:
          ValueError: the default backend is no CPU, `turns` or `longest` is not positive, `path` is
            a folder, a line of the file is not a time, or the file does not say that it is of this
            machine, version and settings.
        """
        if jax.default_backend() != "cpu":
            raise ValueError(
                f"the backend is {jax.default_backend()}: kernels are timed on CPUs only"
            )
        if turns < 1:
            raise ValueError(f"turns is {turns}: expected 1 at least")
        if not longest > 0:
            raise ValueError(f"longest is {longest}: expected a positive number of seconds")
        self.seconds: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        self._path, self._turns, self._longest = path, turns, longest
        self._header = {
            "version": _VERSION,
            "machine": platform.machine(),
            "processor": processor(),
            "cores": cores(),
            "jaxlib": jaxlib.__version__,
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "turns": turns,
            "longest": longest,
        }
        if path is None:
            return
        if path.exists():
            self._load(path)
        else:
            with write_whole(path) as temporary:
                temporary.write_text(json.dumps(self._header) + "\n")

    def of(self, program: Program, parts: Sequence[Group]) -> float:
        """Returns the time of a configuration, in s; infinite if a kernel of it failed.

        What it takes to call a kernel alone is left out.

        Args:
          program: the equations.
          parts: see `gopt.fusion.programs.groups_of`.
        """
        return float(self.of_each(program, [parts])[0])

    def of_each(self, program: Program, configurations: Sequence[Sequence[Group]]) -> np.ndarray:
        """Returns the times of configurations, s `[P]`; infinite where a kernel failed.

        All kernels that are new are timed in turn: where the speed of the machine changes with
        time, those of configurations asked for together stay comparable.

        Args:
          program: the equations.
          configurations: the parts of each, see `of`.
        """
        new: dict[str, JaxprEqn] = {}
        texts: list[list[str]] = []
        for parts in configurations:
            texts.append([])
            for equation in group(program, parts).equations:
                kernel, shapes = _alone(equation, kernel_of(equation))
                text = str(jax.make_jaxpr(kernel)(*shapes))
                texts[-1].append(text)
                if text not in self.seconds:
                    new.setdefault(text, equation)
        if new:
            self._learn(new)
        return np.array([math.fsum(map(self.seconds.__getitem__, each)) for each in texts])

    def _learn(self, new: Mapping[str, JaxprEqn]) -> None:
        """Compiles and times kernels, by their texts."""
        check_units()
        values: dict[tuple[Any, int], jax.Array] = {}
        call = _timed(jax.jit(lambda x: x + 1), [jnp.zeros(4)])
        ready: dict[str, Callable[[], float]] = {}
        for text, equation in new.items():
            try:
                ready[text] = _timed(*_program(equation, values), longest=self._longest)
            except (jax.errors.JaxRuntimeError, TimeoutError) as error:  # the search goes on
                self._fail(text, error)
        calls: list[float] = []
        turns: dict[str, list[float]] = {text: [] for text in ready}
        for _ in range(self._turns):
            calls.append(call())
            for text in list(turns):
                try:
                    turns[text].append(ready[text]())
                except jax.errors.JaxRuntimeError as error:
                    del turns[text]
                    self._fail(text, error)
        for_call, *seconds = typical(np.array([calls, *turns.values()]))
        for text, found in zip(turns, seconds, strict=True):
            self.seconds[text] = max(float(found - for_call), 0.0) / _COPIES
            self._save(text)

    def _fail(self, text: str, error: Exception) -> None:
        self.seconds[text] = math.inf
        self.failures[text] = f"{type(error).__name__}: {error}"
        self._save(text)

    def _save(self, text: str) -> None:
        if self._path is None:
            return
        seconds = self.seconds[text]
        line = {"kernel": text, "seconds": seconds if math.isfinite(seconds) else None}
        if text in self.failures:
            line["failure"] = self.failures[text]
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _load(self, path: Path) -> None:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: expected a file of the times of kernels")
        content = path.read_text(errors="replace")
        if not content:
            raise ValueError(f"{path} is empty: expected a line that says what the times depend on")
        header, *lines = content.splitlines(keepends=True)
        found = _parsed(path, 1, header)
        if not found.keys() & self._header.keys():
            raise ValueError(f"{path}, line 1: does not say what the times depend on")
        for name, expected in self._header.items():
            if found.get(name) != expected:
                raise ValueError(
                    f"{path} has times with {name} = {found.get(name)!r}, expected {expected!r}: "
                    "use another file"
                )
        if lines and not lines[-1].endswith("\n"):  # a run was stopped while it wrote
            lines.pop()
            with write_whole(path) as temporary:
                temporary.write_text("".join([header, *lines]))
        for number, line in enumerate(lines, 2):
            row = _parsed(path, number, line)
            text, seconds = row.get("kernel"), row.get("seconds")
            is_time = isinstance(seconds, float | int) and math.isfinite(seconds) and seconds >= 0
            if not isinstance(text, str) or not (is_time or (seconds is None and "failure" in row)):
                raise ValueError(f"{path}, line {number}: not the time of a kernel")
            self.seconds[text] = math.inf if seconds is None else float(seconds)
            if "failure" in row:
                self.failures[text] = row["failure"]


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: not a line of JSON") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}, line {number}: not the time of a kernel")
    return found


def _timed(
    function: Callable[..., Any], arguments: Sequence[Any], *, longest: float = math.inf
) -> Callable[[], float]:
    """Compiles a function, and returns another that times a call of it, in s.

    Raises:
      TimeoutError: a call takes longer than `longest`, in s.
    """

    def turn(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            result = function(*arguments)
        jax.block_until_ready(result)
        return (time.perf_counter() - begin) / calls

    jax.block_until_ready(function(*arguments))  # it is compiled
    once = turn(1)
    if once > longest:
        raise TimeoutError(f"one call takes {once:.1f} s, more than {longest} s")
    return partial(turn, math.ceil(_TURN / once))


def _program(
    equation: JaxprEqn, values: dict[tuple[Any, int], jax.Array]
) -> tuple[Callable[..., Any], list[jax.Array]]:
    """Returns copies of a kernel as one program, and what it reads.

    Kernels share arrays of the same shape, from `values`, which it adds to; none reads one twice.
    """
    kernel, shapes = _alone(equation, apart(equation))

    def copies(*arguments: Any) -> Any:
        return [kernel(*arguments) for _ in range(_COPIES)]

    arguments: list[jax.Array] = []
    seen: Counter[Any] = Counter()
    for shape in shapes:
        key = shape, seen[shape]
        seen[shape] += 1
        if key not in values:
            values[key] = values_of(shape)
        arguments.append(values[key])
    return jax.jit(copies, compiler_options={"xla_disable_hlo_passes": "cse"}), arguments


def _alone(
    equation: JaxprEqn, run: Callable[..., Any]
) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """Returns a kernel as a function of what it reads, each variable once, and their shapes."""
    read_by = list(dict.fromkeys(variables(equation.invars)))

    def kernel(*values: jax.Array) -> Any:
        known = dict(zip(read_by, values, strict=True))
        return run(*(read(atom, known) for atom in equation.invars))

    return kernel, list(map(shape_of, read_by))


def values_of(shape: jax.ShapeDtypeStruct) -> jax.Array:
    """Returns positive numbers, for the time of some functions depends on them; or random keys."""
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        impl: list[Any] = []
        jax.eval_shape(lambda keys: impl.append(jax.random.key_impl(keys)), shape)
        return jax.random.split(jax.random.key(0, impl=impl[0]), shape.shape)
    rng = np.random.default_rng(0)
    if jnp.issubdtype(shape.dtype, jnp.floating):
        return jnp.asarray(rng.uniform(0.5, 1, shape.shape), shape.dtype)
    return jnp.asarray(rng.integers(0, 2, shape.shape), shape.dtype)
