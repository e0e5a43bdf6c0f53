"""Measured times of configurations: each kernel is compiled and timed once, and then remembered.

The configurations that a search tries share nearly all of their kernels. The time of a
configuration is the sum of its kernels' times, so few kernels are new.
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
from gopt.measure.stored_times import StoredTimes
from gopt.measure.timing import conditions
from gopt.program.equations import may_not_end
from gopt.program.program import Program
from gopt.xla.calls import check_uninlined
from gopt.xla.fused import kernel_of
from gopt.xla.grouping import Group, group

# Version of the timing method. From 2 on, kernels of opaque ops are not calls. From 4 on, kernels
# are timed in interleaved rounds, their results stay in the program, and each argument has its own
# random values. From 5 on, files name `rounds`, formerly `turns`.
_VERSION = 5


class KernelTimes(StoredTimes):
    """Measured times of kernels on this CPU, by the text of the kernel's jaxpr and cold inputs.

    Attributes:
      seconds: time of each kernel by its text, s; infinite if the kernel failed.
      failures: error message of each failed kernel, by its text.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        rounds: int = 12,
        longest: float = 10.0,
    ) -> None:
        """Read earlier measurements.

        Args:
          path: file of measured times, see `gopt.measure.rows.Rows`. Failures are written at once,
            other times at the end of the call of `of` or `of_each` that measures them. By default
            nothing is stored.
          rounds: number of rounds; the shortest time counts.
          longest: time limit of one call, s. A slower kernel counts as failed and is not timed
            again.

        Raises:
          ValueError: the default backend is not a CPU; `rounds` or `longest` is not positive;
            `path` is a folder or another kind of file; a row of the file is not a time; or the file
            is of another machine, version or settings.
        """
        if jax.default_backend() != "cpu":
            raise ValueError(
                f"the backend is {jax.default_backend()}: kernels are timed on CPUs only"
            )
        if not rounds >= 1:
            raise ValueError(f"rounds is {rounds}: expected 1 at least")
        if not longest > 0:
            raise ValueError(f"longest is {longest}: expected a positive number of seconds")
        self._rounds, self._longest = rounds, longest
        self._call: Callable[[], float] | None = None
        header = {"version": _VERSION, **conditions(), "rounds": rounds, "longest": longest}
        super().__init__(path, header, "times of kernels")

    def of(
        self,
        program: Program,
        parts: Sequence[Group],
        *,
        cold: Collection[int] = (),
        bytes_between: float = math.inf,
    ) -> float:
        """Return the time of one configuration, in s; infinite if one of its kernels failed.

        The time to call a function is subtracted from each kernel's time.

        Args:
          program: program whose equations the configuration groups.
          parts: equations of each kernel; see `gopt.fusion.programs.groups_of`.
          cold: positions of cold inputs; see `of_each`.
          bytes_between: bytes read between two reads of a cold input; see `of_each`.

        Raises:
          ValueError: see `of_each`.
        """
        return float(self.of_each(program, [parts], cold=cold, bytes_between=bytes_between)[0])

    def of_each(
        self,
        program: Program,
        configurations: Sequence[Sequence[Group]],
        *,
        cold: Collection[int] = (),
        bytes_between: float = math.inf,
    ) -> np.ndarray:
        """Return the times of several configurations, float64 `[P]`, s.

        All new kernels are timed in interleaved rounds. So the times of one call stay comparable if
        the machine's speed changes.

        A kernel with a `while` loop counts 0 and is not run: on drawn arguments it may not end. XLA
        fuses no loop with other ops, so all configurations have the same one.

        Args:
          program: program whose equations the configurations group.
          configurations: equations of each kernel of each configuration; see `of`.
          cold: positions of the program inputs that are read rarely, such as weights. They are
            read cold if a kernel's cold inputs have at least 16 KiB together. All other inputs are
            read repeatedly, so they are warm if a cache holds them.
          bytes_between: bytes that the program reads between two reads of a cold input. By default
            more than a cache holds, so that cold inputs come from memory. During timing a kernel's
            cold inputs take this many bytes, at most 128 MiB, plus less than two further sets of
            them. Kernels share arrays of one shape and place.

        Returns:
          Time of each configuration; infinite if one of its kernels failed.

        Raises:
          ValueError: `bytes_between` is negative, or `cold` has a position without an input.
        """
        texts = self._texts(program, configurations, cold, bytes_between)
        return np.array([math.fsum(map(self.seconds.__getitem__, each)) for each in texts])

    def of_kernels(self, program: Program, parts: Sequence[Group]) -> np.ndarray:
        """Return the time of each kernel of one configuration, float64 `[K]`, s.

        Args:
          program: program whose equations the configuration groups.
          parts: equations of each kernel, in execution order. `[K]`
        """
        (texts,) = self._texts(program, [parts], (), math.inf)
        return np.array([self.seconds[text] for text in texts])

    def _texts(
        self,
        program: Program,
        configurations: Sequence[Sequence[Group]],
        cold: Collection[int],
        bytes_between: float,
    ) -> list[list[str]]:
        """Return the texts of the kernels of configurations; new kernels are timed."""
        if not bytes_between >= 0:
            raise ValueError(f"bytes_between is {bytes_between}: expected 0 at least")
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
                inputs = isolated_kernel.cold_of(equation, variables, bytes_between)
                if inputs.places:
                    text += f" with {inputs.arrays} of {list(inputs.places)} in rotation"
                texts[-1].append(text)
                if may_not_end([equation]):
                    self.seconds[text] = 0.0
                if text not in self.seconds:
                    new.setdefault(text, (equation, inputs))
        if new:
            self._learn(new)
        return texts

    def _learn(self, new: Mapping[str, tuple[JaxprEqn, isolated_kernel.Cold]]) -> None:
        """Compile and time kernels.

        Args:
          new: equation and cold inputs of each kernel, by its text.
        """
        check_uninlined()
        values: dict[Any, jax.Array] = {}
        if self._call is None:
            self._call = isolated_kernel.timed(jax.jit(lambda x: x + 1), [[jnp.zeros(4)]])
        ready: dict[str, Callable[[], float]] = {}
        for text, (equation, cold) in new.items():
            try:
                function, calls = isolated_kernel.copies(equation, cold, values)
                ready[text] = isolated_kernel.timed(function, calls, longest=self._longest)
            except (jax.errors.JaxRuntimeError, TimeoutError) as error:  # a search goes on
                if "KeyboardInterrupt" in str(error):  # raised in a callback of the kernel
                    raise
                self._fail(text, f"{type(error).__name__}: {error}")
        least = dict.fromkeys(ready, math.inf)
        least_of_call = math.inf
        for _ in range(self._rounds):
            least_of_call = min(least_of_call, self._call())
            for text in list(least):
                try:
                    least[text] = min(least[text], ready[text]())
                except jax.errors.JaxRuntimeError as error:
                    if "KeyboardInterrupt" in str(error):
                        raise
                    del least[text]
                    self._fail(text, f"{type(error).__name__}: {error}")
        for text, seconds in least.items():
            self._add(text, max(seconds - least_of_call, 0.0) / isolated_kernel.COPIES)
