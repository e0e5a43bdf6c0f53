"""Measure compiled functions: memory as planned by XLA, and CPU and wall time."""

import itertools
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib
import numpy as np
from jaxtyping import Shaped

from gopt.host.progress import Progress

# Fewest rounds with a 95 % interval of the median. All 6 are on one side of it in 2 of 2**6 cases.
FEWEST_INTERVAL_ROUNDS = 6

_MADE = 2**28  # bytes of all arguments that are made for the calls of a round
_ROUND = 0.05  # s, shortest total time of the calls of a function in one round


class Memory(NamedTuple):
    """Memory of one device that a compiled function needs while it runs.

    Attributes:
      arguments: bytes of the arguments.
      outputs: bytes of the outputs.
      temporaries: bytes of the temporaries.
      aliases: bytes of outputs that overwrite donated arguments.
    """

    arguments: int
    outputs: int
    temporaries: int
    aliases: int

    @property
    def total(self) -> int:
        """Bytes of arguments, outputs and temporaries, with aliased bytes counted once."""
        return self.arguments + self.without_arguments

    @property
    def without_arguments(self) -> int:
        """Bytes of outputs and temporaries, less aliases."""
        return self.outputs + self.temporaries - self.aliases


def memory(compiled: jax.stages.Compiled) -> Memory:
    """Return the memory that XLA plans for a compiled function.

    Captured arrays are part of the program and are not counted.

    Raises:
      ValueError: the backend does not report memory.
    """
    stats = compiled.memory_analysis()
    if stats is None:
        raise ValueError("the backend does not report the memory of compiled functions")
    return Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        aliases=stats.alias_size_in_bytes,
    )


class Times(NamedTuple):
    """Times per call of one function, one entry for each round.

    Attributes:
      process: CPU time, summed over cores, float64 `[repeats]`, s. Other processes have little
        influence on it.
      wall: wall time, float64 `[repeats]`, s.
    """

    process: np.ndarray
    wall: np.ndarray


def processor() -> str:
    """Return the CPU model, as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def cores() -> int:
    """Return the number of cores that this process may use.

    Containers and batch systems often grant fewer cores than the machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def conditions() -> dict[str, Any]:
    """Return machine, CPU, cores, jaxlib version and XLA flags, which times depend on, as JSON."""
    return {
        "machine": platform.machine(),
        "processor": processor(),
        "cores": cores(),
        "jaxlib": jaxlib.__version__,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def seconds(
    functions: Mapping[str, Callable[..., Any]],
    arguments: Callable[[], tuple[Any, ...]] = tuple,
    *,
    repeats: int = 10,
) -> dict[str, float]:
    """Return the shortest time per call of each function over interleaved rounds, in s.

    Times are CPU times on a CPU, and wall times on other backends. See `time_interleaved`.

    Args:
      functions: functions to time, by name.
      arguments: function that makes the arguments of each call.
      repeats: number of rounds.

    Raises:
      ValueError: `repeats` is less than 1.
    """
    is_cpu = jax.default_backend() == "cpu"
    found = time_interleaved(functions, arguments, repeats=repeats)
    return {name: float((t.process if is_cpu else t.wall).min()) for name, t in found.items()}


def time_interleaved(
    functions: Mapping[str, Callable[..., Any]],
    arguments: Callable[[], tuple[Any, ...]] = tuple,
    *,
    repeats: int = 10,
    progress: Progress | None = None,
) -> dict[str, Times]:
    """Time several functions in interleaved rounds.

    Each function first runs twice, uncounted: to compile, and to choose its number of calls per
    round. Short functions are called several times per round, because the system counts CPU time in
    ticks. The calls of one function in a round take about 0.05 s or more, unless the arguments that
    are made for them have more than 256 MiB.

    Args:
      functions: functions to time, by name. Each call waits for the results.
      arguments: function that makes the arguments of each call. Making them is not timed. They are
        made anew because a call may consume them.
      repeats: number of rounds.
      progress: shows progress. After Ctrl-C, no new round begins but the first one.

    Returns:
      Times per call of each function, by name.

    Raises:
      ValueError: `repeats` is less than 1.
    """
    check_repeats(repeats)
    progress = progress or Progress()
    progress.phase("rounds of timing", repeats)
    most = _calls_in_memory(arguments)
    calls = (arguments() for _ in itertools.count())
    timers = {
        name: timer(function, calls, shortest=_ROUND, most_calls=most)
        for name, function in functions.items()
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for k in range(repeats):
        for name, measure in timers.items():
            found[name].append(measure())
        progress.advance(k + 1)
        if progress.is_interrupted:
            break
    return {name: Times(*np.array(times).T) for name, times in found.items()}


def _calls_in_memory(arguments: Callable[[], tuple[Any, ...]]) -> int:
    """Return the number of calls whose arguments, made anew for each, fit in memory at once."""
    pairs = zip(*(jax.tree.leaves(arguments()) for _ in range(2)), strict=True)
    made = sum(getattr(a, "nbytes", 0) for a, b in pairs if a is not b)
    return max(1, _MADE // max(made, 1))


def timer(
    function: Callable[..., Any],
    arguments: Iterator[Sequence[Any]],
    *,
    shortest: float,
    longest: float = math.inf,
    waits_for_each: bool = True,
    most_calls: int = sys.maxsize,
) -> Callable[[], tuple[float, float]]:
    """Compile a function and return another one that times it.

    The function runs twice, uncounted: to compile, and to choose the number of calls per round.

    Args:
      function: function to time.
      arguments: arguments of each call, without an end. They are made before the clock starts.
      shortest: shortest time of all calls of a round, s.
      longest: time limit of one call, s.
      waits_for_each: whether each call waits for its results, rather than the last call alone.
      most_calls: largest number of calls of a round.

    Returns:
      Function that returns the CPU and wall time per call of one round, s.

    Raises:
      TimeoutError: a call takes longer than `longest`.
    """

    def measure(calls: int) -> tuple[float, float]:
        given = jax.block_until_ready(list(itertools.islice(arguments, calls)))
        result = None
        process, wall = time.process_time(), time.perf_counter()
        for args in given:
            if waits_for_each:
                jax.block_until_ready(function(*args))
            else:
                result = function(*args)
        jax.block_until_ready(result)
        process, wall = time.process_time() - process, time.perf_counter() - wall
        return process / calls, wall / calls

    measure(1)  # compiles the function, if it is jitted
    _, once = measure(1)
    if once > longest:
        raise TimeoutError(f"one call takes {once:.1f} s, more than {longest} s")
    return partial(measure, max(1, min(math.ceil(shortest / once), most_calls)))


def check_repeats(repeats: int) -> None:
    """Raise `ValueError` if `repeats` is less than 1. Check early, before expensive work starts."""
    if not isinstance(repeats, Integral) or not repeats >= 1:
        raise ValueError(f"repeats is {repeats!r}: expected a whole number, 1 at least")


def median_ratio(
    times: Shaped[np.ndarray, " repeats"], base: Shaped[np.ndarray, " repeats"]
) -> tuple[float, float, float]:
    """Return the median over rounds of the ratio of two functions' times, and its 95 % interval.

    The bounds of the interval are order statistics of the ratios. Rounds are assumed to be
    independent; the distribution of ratios is arbitrary. The interval is too narrow if the machine
    slows down for several rounds. With fewer than `FEWEST_INTERVAL_ROUNDS` rounds it is 0 to
    infinity.

    Args:
      times: times of one function, `[repeats]`.
      base: times of another function in the same rounds, `[repeats]`.

    Returns:
      Median ratio, and the lower and upper bounds of the interval.
    """
    from scipy.stats import binom

    ratios = np.sort(np.asarray(times) / np.asarray(base))
    if len(ratios) < FEWEST_INTERVAL_ROUNDS:
        return float(np.median(ratios)), 0.0, np.inf
    outside = int(binom.ppf(0.025, len(ratios), 0.5))
    return float(np.median(ratios)), float(ratios[outside - 1]), float(ratios[-outside])
