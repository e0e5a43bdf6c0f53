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

BY_WEIGHT, BY_SIZE = (4, 8, 16, 32, 64), (4, 16, 64)  # groups for each device
RECURRENT = ("rnnlm", "gnmt")
IMBALANCES = (1.03, 1.2, 1.6)  # that METIS may leave


class Placed(NamedTuple):
    """A placement, and what it took to find it."""

    device: np.ndarray  # int32 [N]
    makespan: float  # s
    first_come: float  # s, if ops are served first come, first served
    fits: bool  # the memory of all devices
    tried: int  # how many placements it is the best of
    seconds: float


def placed(problem: Problem, traced: Traced, row: Row, seeds: int) -> dict[str, Placed]:
    """Returns the placement of each heuristic; where one has settings, the best of those tried.

    The expert is the better one of the splits by layer and, of recurrent models, by time step.
    METIS has each combination of `IMBALANCES`, seeds and weights of shared tensors. m-ETF, HEFT and
    critical path have groups of ops that read a weight, as they are and joined, and of single ops
    joined (`gopt.classical.groups`), and HEFT each op alone, too.
    """
    layers = row.sizes.get("layers", 1)
    by_weight = weight_groups(problem)
    alone = np.arange(int(problem.num_ops))
    grouped = [by_weight]
    for groups, counts in ((by_weight, BY_WEIGHT), (alone, BY_SIZE)):
        grouped += [join(problem, groups, k * row.devices) for k in counts]
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
        "one device": best(problem, [lambda: np.zeros(problem.shape.ops)]),
        "expert": best(problem, split),
        "METIS": best(problem, parted),
        "critical path": best(problem, [partial(critical_path, problem, g) for g in grouped]),
        "HEFT": best(problem, [partial(heft, problem, g) for g in (None, *grouped)]),
        "ETF": best(problem, [partial(etf, problem)]),
        "m-ETF": best(problem, [partial(memory_etf, problem, g) for g in grouped]),
    }


def best(problem: Problem, every: Sequence[Callable[[], Keys | np.ndarray]]) -> Placed:
    """Returns the best of some placements; those that fit are better than those that do not.

    Ops are served first come, first served, or, if a list scheduler says in which order, as it says
    where that is better.
    """
    began, found = time.perf_counter(), []
    for make in every:
        made = make()
        device = np.zeros(problem.shape.ops, np.int32)
        ops = execution.decode(problem, made).device if isinstance(made, Keys) else made
        device[: len(ops)] = ops
        device = np.asarray(dispatch.settled(problem, jnp.asarray(device)))
        first = cost = _first_come(problem, device)
        if isinstance(made, Keys):
            cost = min(cost, _in_order(problem, made), key=lambda cost: float(cost.makespan))
        fits = bool((np.asarray(cost.peak) <= problem.capacity).all())
        seconds, arrival = (float(to_seconds(problem, x.makespan)) for x in (cost, first))
        found.append(Placed(device, seconds, arrival, fits, len(every), 0.0))
    top = min(found, key=lambda one: (not one.fits, one.makespan))
    return top._replace(seconds=time.perf_counter() - began)


@jax.jit
def _first_come(problem: Problem, device: jax.Array) -> Cost:
    return dispatch.evaluate(problem, dispatch.placement(problem, device))


_in_order = jax.jit(execution.evaluate)
