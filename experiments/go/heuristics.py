"""Placements of the rows of the table without a search: experts, METIS, list scheduling."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go import experts
from experiments.go.rows import Row
from gopt.classical import critical_path, etf, heft, memory_etf
from gopt.classical.groups import join, weight_groups
from gopt.classical.partition import partition_by_time
from gopt.cost import dispatch, execution
from gopt.cost.execution import Cost, Keys
from gopt.problem import Problem, to_seconds
from gopt.sources.jaxpr import Traced

GROUPS = (16, 64, 256)  # of list scheduling that keeps ops together, for each device
RECURRENT = ("rnnlm", "gnmt")
IMBALANCES = (1.03, 1.1, 1.3)  # that METIS may leave


class Placed(NamedTuple):
    """A placement, and what it took to find it."""

    device: np.ndarray  # int32 [N]
    makespan: float  # s
    fits: bool  # the memory of all devices
    tried: int  # how many placements it is the best of
    seconds: float


def placed(problem: Problem, traced: Traced, row: Row, seeds: int) -> dict[str, Placed]:
    """Returns the placement of each heuristic; where one has settings, the best of those tried.

    The expert is the better one of the splits by layer and, of recurrent models, by time step.
    METIS has each combination of `IMBALANCES`, seeds and weights of shared tensors; m-ETF, HEFT and
    critical path have groups of weights (`gopt.classical.groups`), as many as `GROUPS` says.
    """
    layers = row.sizes.get("layers", 1)
    by_weight = weight_groups(problem)
    grouped = [by_weight, *(join(problem, by_weight, k * row.devices) for k in GROUPS)]
    parted = [
        partial(partition_by_time, problem, seed=seed, imbalance=imbalance, shared_out=shared_out)
        for seed in range(1, seeds + 1)
        for imbalance in IMBALANCES
        for shared_out in (True, False)
    ]
    split = [lambda: experts.by_layer(traced, problem, row.family, layers)]
    if row.family in RECURRENT:
        split.append(lambda: experts.by_step(traced, problem))
    return {
        "one device": _best(problem, [lambda: np.zeros(problem.shape.ops)]),
        "expert": _best(problem, split),
        "METIS": _best(problem, parted),
        "critical path": _best(problem, [partial(critical_path, problem, g) for g in grouped]),
        "HEFT": _best(problem, [partial(heft, problem, g) for g in (None, *grouped)]),
        "ETF": _best(problem, [partial(etf, problem)]),
        "m-ETF": _best(problem, [partial(memory_etf, problem, g) for g in grouped]),
    }


def _best(problem: Problem, every: Sequence[Callable[[], Keys | np.ndarray]]) -> Placed:
    """Returns the best of some placements; those that fit are better than those that do not.

    Ops are served first come, first served, or, if a list scheduler says in which order, as it says
    where that is better.
    """
    began, found = time.perf_counter(), []
    for make in every:
        made = make()
        device = np.zeros(problem.shape.ops, np.int32)
        keys = made if isinstance(made, Keys) else None
        ops = np.asarray(made if keys is None else execution.decode(problem, keys).device)
        device[: ops.size] = ops
        device = np.asarray(dispatch.settled(problem, jnp.asarray(device)))
        costs = [_cost(problem, jnp.asarray(device))]
        if keys is not None:
            costs.append(_cost_of_keys(problem, keys))
        makespan, excess = min(
            (int(cost.makespan), int((np.asarray(cost.peak) - problem.capacity).max()))
            for cost in costs
        )
        seconds = float(to_seconds(problem, makespan))
        found.append(Placed(device, seconds, excess <= 0, len(every), 0.0))
    best = min(found, key=lambda one: (not one.fits, one.makespan))
    return best._replace(seconds=time.perf_counter() - began)


@jax.jit
def _cost(problem: Problem, device: jax.Array) -> Cost:
    return dispatch.evaluate(problem, dispatch.placement(problem, device))


_cost_of_keys = jax.jit(execution.evaluate)
