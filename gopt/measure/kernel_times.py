"""What a configuration takes for real: each kernel is compiled and timed once, and never again.

Configurations that a search tries share nearly all of their kernels. So the time of one is the sum
of the times of its kernels, of which few are new.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from gopt.measure import isolated_kernel
from gopt.measure.cache import MeasurementCache
from gopt.measure.timing import conditions
from gopt.program.program import Program
from gopt.xla.calls import check_uninlined
from gopt.xla.fused import kernel_of
from gopt.xla.grouping import Group, group

# Of how kernels are timed. Since 2, those of opaque ops are no calls; since 4, they take turns,
# what they make stays in the program, and what they read is drawn for each argument.
_VERSION = 4


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
          path: where times are written, failures at once, others at the end of the call of `of` or
            `of_each` to which they were new: a line of JSON each, after one that says what they
            depend on; by default nowhere.
          turns: how often each kernel is timed; the least counts.
          longest: a kernel that takes longer is not timed again, and counts as failed, in s.

        Raises:
          ValueError: the default backend is no CPU, `turns` or `longest` is not positive, `path` is
            a folder, a row of the file is not a time, or the file is one of another machine,
            version or settings.
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
        self._turns, self._longest = turns, longest
        self._call: Callable[[], float] | None = None
        self._cache: MeasurementCache | None = None
        if path is None:
            return
        header = {
            "version": _VERSION,
            **conditions(),
            "turns": turns,
            "longest": longest,
        }
        self._cache = MeasurementCache(path, header, "times")
        for place, row in self._cache.rows():
            self._load(place, row)

    def of(
        self,
        program: Program,
        parts: Sequence[Group],
        *,
        cold: Collection[int] = (),
        between: float = math.inf,
    ) -> float:
        """Returns the time of a configuration, in s; infinite if a kernel of it failed.

        What it takes to call a kernel alone is left out.

        Args:
          program: the equations.
          parts: see `gopt.fusion.programs.groups_of`.
          cold: see `of_each`.
          between: see `of_each`.
        """
        return float(self.of_each(program, [parts], cold=cold, between=between)[0])

    def of_each(
        self,
        program: Program,
        configurations: Sequence[Sequence[Group]],
        *,
        cold: Collection[int] = (),
        between: float = math.inf,
    ) -> np.ndarray:
        """Returns the times of configurations, s `[P]`; infinite where a kernel failed.

        All kernels that are new are timed in turn: where the speed of the machine changes with
        time, those of configurations asked for together stay comparable.

        Args:
          program: the equations.
          configurations: the parts of each, see `of`.
          cold: inputs of the program, by number, that are read once in a while, as weights are. All
            others are read again and again, so that they are in a cache if one holds them.
          between: bytes that are read from one read of such an input to the next. By default that
            is more than a cache holds, so that it comes from memory, if these inputs of a kernel
            have 16 KiB together. While it is timed they take `between` bytes, 128 MiB at most, and
            less than two sets of them more; kernels share those of one shape and place.

        Raises:
          ValueError: `between` is negative, or the program has no such input.
        """
        if not between >= 0:
            raise ValueError(f"between is {between}: expected 0 or a positive number of bytes")
        for number in cold:
            if not 0 <= number < len(program.inputs):
                raise ValueError(f"cold has {number}, expected 0..{len(program.inputs) - 1}")
        variables = {program.inputs[number] for number in cold}
        new: dict[str, tuple[JaxprEqn, isolated_kernel.Cold]] = {}
        texts: list[list[str]] = []
        for parts in configurations:
            texts.append([])
            for equation in group(program, parts).equations:
                kernel, shapes = isolated_kernel.kernel(equation, kernel_of(equation))
                text = str(jax.make_jaxpr(kernel)(*shapes))
                inputs = isolated_kernel.cold_of(equation, variables, between)
                if inputs.places:
                    text += f" with {inputs.arrays} of {list(inputs.places)} in turn"
                texts[-1].append(text)
                if text not in self.seconds:
                    new.setdefault(text, (equation, inputs))
        if new:
            self._learn(new)
        return np.array([math.fsum(map(self.seconds.__getitem__, each)) for each in texts])

    def _learn(self, new: Mapping[str, tuple[JaxprEqn, isolated_kernel.Cold]]) -> None:
        """Compiles and times kernels, with their cold inputs, by their texts."""
        check_uninlined()
        values: dict[Any, jax.Array] = {}
        if self._call is None:
            self._call = isolated_kernel.timed(jax.jit(lambda x: x + 1), [[jnp.zeros(4)]])
        ready: dict[str, Callable[[], float]] = {}
        for text, (equation, cold) in new.items():
            try:
                function, calls = isolated_kernel.copies(equation, cold, values)
                ready[text] = isolated_kernel.timed(function, calls, longest=self._longest)
            except (jax.errors.JaxRuntimeError, TimeoutError) as error:  # the search goes on
                self._fail(text, error)
        least = dict.fromkeys(ready, math.inf)
        least_of_call = math.inf
        for _ in range(self._turns):
            least_of_call = min(least_of_call, self._call())
            for text in list(least):
                try:
                    least[text] = min(least[text], ready[text]())
                except jax.errors.JaxRuntimeError as error:
                    del least[text]
                    self._fail(text, error)
        for text, seconds in least.items():
            self.seconds[text] = max(seconds - least_of_call, 0.0) / isolated_kernel.COPIES
            self._save(text)

    def _fail(self, text: str, error: Exception) -> None:
        self.seconds[text] = math.inf
        self.failures[text] = f"{type(error).__name__}: {error}"
        self._save(text)

    def _save(self, text: str) -> None:
        if self._cache is None:
            return
        seconds = self.seconds[text]
        row = {"kernel": text, "seconds": seconds if math.isfinite(seconds) else None}
        if text in self.failures:
            row["failure"] = self.failures[text]
        self._cache.append(row)

    def _load(self, place: str, row: Any) -> None:
        if isinstance(row, dict):
            text, seconds = row.get("kernel"), row.get("seconds")
            is_time = isinstance(seconds, float | int) and math.isfinite(seconds) and seconds >= 0
            if isinstance(text, str) and (is_time or (seconds is None and "failure" in row)):
                self.seconds[text] = math.inf if seconds is None else float(seconds)
                if "failure" in row:
                    self.failures[text] = row["failure"]
                return
        raise ValueError(f"{place}: not the time of a kernel")
