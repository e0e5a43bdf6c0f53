"""Wall and CPU time of calls, and the name of the machine."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.measure.timing import processor


class Timing(NamedTuple):
    """The least time of a call.

    Attributes:
      wall: wall time, s.
      cpu: CPU time of all threads, s.
    """

    wall: float
    cpu: float


def measure(
    calls: dict[str, Callable[[], Any]], *, rounds: int, seconds: float
) -> dict[str, Timing]:
    """Return the least time of each call, in interleaved rounds; a first round is not timed."""
    for call in calls.values():
        jax.block_until_ready(call())
    began = time.perf_counter()
    taken: dict[str, list[Timing]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(call())
            taken[name].append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
        if time.perf_counter() - began > seconds:
            break
    least = {name: np.maximum(np.min(times, axis=0), 1e-9) for name, times in taken.items()}
    return {name: Timing(*times.tolist()) for name, times in least.items()}


def machine() -> str:
    """Return the name of the processor and of the accelerators."""
    kinds = sorted({device.device_kind for device in jax.devices()})
    return f"{processor()}; {len(jax.devices())} JAX devices: {', '.join(kinds)}"
