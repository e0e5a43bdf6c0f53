"""What a compiled function really needs: memory as XLA plans it, time as the process spends it."""

import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib
import numpy as np

FEWEST_TURNS = 6  # that tell where a median lies: all are on one side of it in 2 of 2**6 cases, 3 %

_TURN = 0.05  # s, what is timed at once at least


class Memory(NamedTuple):
    """Bytes of one device that a compiled function needs while it runs."""

    arguments: int
    outputs: int
    temporaries: int
    aliases: int  # of outputs that are written over donated arguments

    @property
    def total(self) -> int:
        """All together; what outputs share with arguments counts once."""
        return self.arguments + self.beside

    @property
    def beside(self) -> int:
        """What is needed beside the arguments."""
        return self.outputs + self.temporaries - self.aliases


def memory(compiled: jax.stages.Compiled) -> Memory:
    """Returns the memory that XLA has planned for a compiled function.

    Captured arrays, which are part of the program, are not counted.

    Raises:
      ValueError: the backend does not tell.
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
    """What calls of a function took in each turn, `[repeats]`, s."""

    process: np.ndarray  # of all cores, on which other processes have little influence
    wall: np.ndarray


def processor() -> str:
    """Returns the model of the CPU, as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def cores() -> int:
    """Returns how many cores this process may use.

    A container or a batch system often lends fewer than the machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def conditions() -> dict[str, Any]:
    """Returns what times on this CPU depend on, besides the program, as JSON values."""
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
    """Returns the least time that each of several functions took, run in turn, in s.

    On a CPU that is time of the process, elsewhere it is time on the wall; see `turns`.
    """
    is_cpu = jax.default_backend() == "cpu"
    found = turns(functions, arguments, repeats=repeats)
    return {name: float((t.process if is_cpu else t.wall).min()) for name, t in found.items()}


def turns(
    functions: Mapping[str, Callable[..., Any]],
    arguments: Callable[[], tuple[Any, ...]] = tuple,
    *,
    repeats: int = 10,
) -> dict[str, Times]:
    """Returns what a call of each of several functions took in each of its turns.

    Every function runs twice before, not counted: to be compiled, and to see how often to call it
    in each turn. Short functions are called several times, because the system counts the time of
    threads in ticks.

    Args:
      functions: what they return is waited for.
      arguments: makes the arguments of each call, anew because it may consume them; not counted.
      repeats: how often each is timed.

    Raises:
      ValueError: `repeats` is less than 1.
    """
    check_repeats(repeats)
    calls: dict[str, int] = {}
    for name, function in functions.items():
        _time(function, arguments, 1)  # it may be compiled
        _, once = _time(function, arguments, 1)
        calls[name] = max(1, math.ceil(_TURN / once))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            found[name].append(_time(function, arguments, calls[name]))
    return {name: Times(*np.array(times).T) for name, times in found.items()}


def check_repeats(repeats: int) -> None:
    """Raises ValueError if there is no turn; for whoever works long before the first one."""
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}: expected 1 at least")


def median_ratio(times: np.ndarray, base: np.ndarray) -> tuple[float, float, float]:
    """Returns the median ratio of two functions' times in each turn, and its 95 % interval.

    The interval is between ratios. So it supposes nothing of how they are distributed, but that
    turns are independent: where a machine slows down for several turns it is too narrow. Of fewer
    than `FEWEST_TURNS` there is no such interval, and it is from 0 to infinity.

    Args:
      times: of a function, `[repeats]`.
      base: of another one in the same turns, `[repeats]`.
    """
    from scipy.stats import binom

    ratios = np.sort(np.asarray(times) / np.asarray(base))
    if len(ratios) < FEWEST_TURNS:
        return float(np.median(ratios)), 0.0, np.inf
    outside = int(binom.ppf(0.025, len(ratios), 0.5))
    return float(np.median(ratios)), float(ratios[outside - 1]), float(ratios[-outside])


def _time(
    function: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]], calls: int
) -> tuple[float, float]:
    """Returns the seconds of one of several calls, of the process and on the wall."""
    given = jax.block_until_ready([arguments() for _ in range(calls)])
    process, wall = time.process_time(), time.perf_counter()
    for args in given:
        jax.block_until_ready(function(*args))
    process, wall = time.process_time() - process, time.perf_counter() - wall
    return process / calls, wall / calls
