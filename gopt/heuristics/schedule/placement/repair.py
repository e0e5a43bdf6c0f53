"""Repair placements that exceed device memory by moving groups of ops."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Int32

from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import Cost
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.readiness import check_group


class _Tried(NamedTuple):
    """A placement and its cost.

    Attributes:
      device: device of each op, int32 `[N]`.
      excess: units above the capacity of each device, int64 `[D]`.
      total: sum of the excess, in units.
      makespan: makespan, in ticks.
    """

    device: np.ndarray
    excess: np.ndarray
    total: int
    makespan: int


def fit_memory(
    problem: Problem, device: Int[np.ndarray, " N"], group: Int[np.ndarray, " n"]
) -> Int32[np.ndarray, " N"]:
    """Return a placement that fits the capacities, or the nearest one found, int32 `[N]`.

    While a device peaks above its capacity, its ops of one group move to another device. Of all
    moves that reduce the total excess over devices, the one with the smallest increase of makespan
    per unit is taken, the first on ties. If no move reduces the excess, the search stops. Ops are
    served first come, first served. Each move is fully costed. The rule is our choice.

    Args:
      problem: one problem of n real ops, as NumPy arrays.
      device: device of each op, int `[N]`; inputs follow their readers, see
        `gopt.cost.schedule.dispatch.legalize_placement`.
      group: group of each op, int `[n]`.

    Raises:
      ValueError: `group` does not have one entry per op.
    """
    check_group(problem, group)
    best = _try(problem, np.asarray(device))
    while best.total > 0:
        now = best
        tried = (_try(problem, moved) for moved in _moves(now, np.asarray(group)))
        lower = [found for found in tried if found.total < now.total]
        if not lower:
            break
        losses = [(found.makespan - now.makespan) / (now.total - found.total) for found in lower]
        best = lower[int(np.argmin(losses))]
    return best.device


def _moves(now: _Tried, group: np.ndarray) -> Iterator[np.ndarray]:
    """Yield placements that move the ops of one group from an overfull device to another device."""
    there = now.device[: group.size]
    for full in np.flatnonzero(now.excess).tolist():
        for one in np.unique(group[there == full]).tolist():
            for other in range(now.excess.size):
                if other != full:
                    moved = now.device.copy()
                    moved[: group.size][(there == full) & (group == one)] = other
                    yield moved


def _try(problem: Problem, device: np.ndarray) -> _Tried:
    placed, cost = jax.tree.map(np.asarray, _settled_cost(problem, jnp.asarray(device, jnp.int32)))
    excess = np.maximum(cost.peak.astype(np.int64) - problem.capacity, 0)
    return _Tried(placed, excess, int(excess.sum()), int(cost.makespan))


@jax.jit
def _settled_cost(problem: Problem, device: jax.Array) -> tuple[jax.Array, Cost]:
    placed = dispatch.legalize_placement(problem, device)
    return placed, dispatch.evaluate(problem, dispatch.placement(problem, placed))
