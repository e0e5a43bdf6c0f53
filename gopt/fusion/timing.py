"""What a configuration takes for real: each kernel is compiled and timed once, and never again.

Configurations that a search tries share nearly all of their kernels. So the time of one is the sum
of the times of its kernels, of which few are new.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from gopt.cost.cells import unit
from gopt.fusion.programs import kernel_of
from gopt.kernels.grouping import Group, group
from gopt.kernels.labels import read
from gopt.program import Program, shape_of, variables

_TURN = 2e-3  # s, what is timed at once at least
_COPIES = 4  # of a kernel in one program, so that what it takes to call the program counts little


class KernelTimes:
    """The times of kernels on the default device, by what they compute.

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
          path: where each time is written as soon as it is known, a line of JSON each; by default
            nowhere.
          turns: how often each kernel is timed; the least counts.
          longest: a kernel that takes longer is not timed again, and counts as failed, in s.

        Raises:
          ValueError: `turns` or `longest` is not positive, or a line of the file is not a time.
        """
        if turns < 1:
            raise ValueError(f"turns is {turns}: expected 1 at least")
        if not longest > 0:
            raise ValueError(f"longest is {longest}: expected a positive number of seconds")
        self.seconds: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        self._path, self._turns, self._longest = path, turns, longest
        self._call = math.nan
        if path is not None and path.exists():
            self._load(path)

    def of(self, program: Program, parts: Sequence[Group]) -> float:
        """Returns the time of a configuration, in s; infinite if a kernel of it failed.

        What it takes to call a kernel alone is left out.

        Args:
          program: the equations.
          parts: see `gopt.fusion.programs.groups_of`.
        """
        return math.fsum(map(self._of_kernel, group(program, parts).equations))

    def _of_kernel(self, equation: JaxprEqn) -> float:
        text = _text(equation)
        if text not in self.seconds:
            try:
                self.seconds[text] = self._measure(equation)
            except Exception as error:  # whatever XLA refuses: the search goes on
                self.seconds[text] = math.inf
                self.failures[text] = f"{type(error).__name__}: {error}"
            self._save(text)
        return self.seconds[text]

    def _measure(self, equation: JaxprEqn) -> float:
        if math.isnan(self._call):
            self._call = self._least(jax.jit(lambda x: x + 1), [jnp.zeros(4)])
        kernel, shapes = _alone(equation)
        kernel = unit(kernel)

        def copies(*arguments: Any) -> Any:
            return [kernel(*arguments) for _ in range(_COPIES)]

        program = jax.jit(copies, compiler_options={"xla_disable_hlo_passes": "cse"})
        arguments = list(map(_values, shapes))
        return max(self._least(program, arguments) - self._call, 0.0) / _COPIES

    def _least(self, function: Callable[..., Any], arguments: Sequence[Any]) -> float:
        def turn(calls: int) -> float:
            begin = time.perf_counter()
            for _ in range(calls):
                result = function(*arguments)
            jax.block_until_ready(result)
            return (time.perf_counter() - begin) / calls

        jax.block_until_ready(function(*arguments))  # it is compiled
        once = turn(1)
        if once > self._longest:
            raise TimeoutError(f"one call takes {once:.1f} s, more than {self._longest} s")
        calls = math.ceil(_TURN / once)
        return min(turn(calls) for _ in range(self._turns))

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
        *lines, last = path.read_text().split("\n")
        if last:  # a run was stopped while it wrote
            path.write_text("".join(f"{line}\n" for line in lines))
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                text, seconds = found["kernel"], found["seconds"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not the time of a kernel") from error
            self.seconds[text] = math.inf if seconds is None else float(seconds)
            if "failure" in found:
                self.failures[text] = found["failure"]


def _text(equation: JaxprEqn) -> str:
    """Returns what a kernel computes, whatever its variables are called."""
    kernel, shapes = _alone(equation)
    return str(jax.make_jaxpr(kernel)(*shapes))


def _alone(equation: JaxprEqn) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """Returns a kernel as a function of what it reads, each variable once, and their shapes."""
    read_by = list(dict.fromkeys(variables(equation.invars)))

    def kernel(*values: jax.Array) -> Any:
        known = dict(zip(read_by, values, strict=True))
        return kernel_of(equation)(*(read(atom, known) for atom in equation.invars))

    return kernel, list(map(shape_of, read_by))


def _values(shape: jax.ShapeDtypeStruct) -> jax.Array:
    """Returns positive numbers, for the time of some functions depends on them."""
    rng = np.random.default_rng(0)
    if jnp.issubdtype(shape.dtype, jnp.floating):
        return jnp.asarray(rng.uniform(0.5, 1, shape.shape), shape.dtype)
    return jnp.asarray(rng.integers(0, 2, shape.shape), shape.dtype)
