"""Placements that do not fit the memory of the devices, moved group by group until they do."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import Cost
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.readiness import check_group


class _Tried(NamedTuple):
    """A placement and what it costs."""

    device: np.ndarray  # [N]
    excess: np.ndarray  # [D], units above the capacity
    total: int  # of the excess
    makespan: int  # ticks


def fit_memory(problem: Problem, device: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Returns a placement that fits, or comes as near as it gets, int32 `[N]`.

    While a device peaks above its capacity, what it has of one group moves to another device: of
    all such moves that leave less excess, summed over devices, the one that lengthens the step
    least for each unit of it, the first on ties. Where no move leaves less, it stays so. Ops are
    served first come, first served, and each move is costed in full; the rule is our choice.

    Args:
      problem: one problem of n real ops, on the host.
      device: of each op, int `[N]`; inputs follow their readers, see
      `gopt.cost.schedule.dispatch.settled`.
      group: of each op, int `[n]`.

    Raises:
      ValueError: there is not one group for each op.
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
    """Yields placements in which what an overfull device has of a group is on another device."""
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
    placed = dispatch.settled(problem, device)
    return placed, dispatch.evaluate(problem, dispatch.placement(problem, placed))
