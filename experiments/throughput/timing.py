"""Checks of costs, wall and CPU time of calls, and candidates per second as table cells."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from gopt.measure.timing import Times, processor, time_interleaved
from gopt.search.parallel import shard_candidates


def place(candidates: Any) -> Any:
    """Return candidates `[P, ...]`, complete on every device as in a search."""
    return jax.jit(shard_candidates(lambda leaves: leaves))(candidates)


def check_same(name: str, expected: Any, found: Any) -> None:
    """Raise a `RuntimeError` with a name if costs, arrays in a tree, differ in any bit."""
    if not all(map(np.array_equal, jax.tree.leaves(expected), jax.tree.leaves(found))):
        raise RuntimeError(f"{name}: the costs differ")


def least(times: Times) -> dict[str, float]:
    """Return the least wall time and the least CPU time of a call, s."""
    return {"wall": float(times.wall.min()), "cpu": float(times.process.min())}


def rates(
    calls: Mapping[str, Callable[[], Any]], counts: Mapping[str, int], *, rounds: int
) -> dict[str, dict[str, float]]:
    """Return candidates per second, by call and by "wall" and "cpu".

    Args:
      calls: functions that cost candidates, by name.
      counts: number of candidates of each.
      rounds: rounds of timing, interleaved; the least time counts.
    """
    return {
        name: {clock: counts[name] / seconds for clock, seconds in least(times).items()}
        for name, times in time_interleaved(calls, repeats=rounds).items()
    }


def rate(name: str) -> Callable[[Any], str]:
    """Return a function that makes a cell of candidates per second."""
    return lambda row: f"{row['per_second'][name]['wall']:,.0f}"


def ratio(name: str, clock: str = "wall") -> Callable[[Any], str]:
    """Return a function that makes a cell of gopt's candidates per second ÷ a peer's."""
    return lambda row: f"{row['per_second']['gopt'][clock] / row['per_second'][name][clock]:.2f}"


def machine() -> str:
    """Return the name of the processor and of the accelerators."""
    kinds = sorted({device.device_kind for device in jax.devices()})
    return f"{processor()}; {len(jax.devices())} JAX devices: {', '.join(kinds)}"
