"""Place the rows of the table without a search: experts, METIS, list scheduling."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go import experts
from experiments.go.rows import Row, Step
from experiments.harness import store
from gopt.cost.schedule import decoding, dispatch, execution
from gopt.cost.schedule.decoding import Cost
from gopt.cost.schedule.problem import Problem, to_seconds
from gopt.heuristics import critical_path, etf, fit_memory, heft, memory_etf
from gopt.heuristics.schedule.placement.groups import join_groups, weight_groups
from gopt.heuristics.solvers.metis import partition_by_time
from gopt.program.hashing import digest_arrays

BY_WEIGHT, BY_SIZE = (4, 8, 16, 32, 64), (4, 16, 64)  # groups for each device
RECURRENT = ("rnnlm", "gnmt")
IMBALANCES = (1.03, 1.2, 1.6)  # imbalances that METIS may leave
PARTITIONED = {"METIS": "op", "METIS, by weight": "weight"}  # units that METIS places
OWN_ORDER = ", own order"


class Placed(NamedTuple):
    """A placement, and the effort of finding it.

    Attributes:
      device: int32 [N], device of each op.
      makespan: makespan, s.
      fits: whether the memory of all devices suffices.
      tried: number of placements of which it is the best.
      seconds: time of finding them all, without evaluating their costs, s.
    """

    device: np.ndarray
    makespan: float
    fits: bool
    tried: int
    seconds: float


def kept(folder: Path, problem: Problem, step: Step, row: Row, seeds: int) -> dict[str, Placed]:
    """Return the result of `placed`, read from a folder if it is there.

    Raises:
      ValueError: the file is about something else, or cannot be read.
    """

    def make() -> dict[str, Any]:
        found = placed(problem, step, row, seeds)
        columns = dict(zip(Placed._fields, zip(*found.values(), strict=True), strict=True))
        return {"method": list(found), **columns}

    tried = {"weights": BY_WEIGHT, "sizes": BY_SIZE, "imbalances": IMBALANCES, "seeds": seeds}
    about = {"problem": digest_arrays(problem), "partitioned": PARTITIONED} | tried
    arrays = store.Store(folder, about).arrays("heuristics", make)
    rows = zip(*(arrays[name].tolist() for name in Placed._fields[1:]), strict=True)
    each = zip(arrays["method"].tolist(), arrays["device"], rows, strict=True)
    return {method: Placed(device, *figures) for method, device, figures in each}


def placed(problem: Problem, step: Step, row: Row, seeds: int) -> dict[str, Placed]:
    """Return the placement of each heuristic, the best over the settings that are tried.

    The expert is the better split, by layer or, for recurrent models, by time step. METIS is
    `partitioned` on single ops; "by weight", on groups of ops that read a weight.

    m-ETF, HEFT and critical path place these groups, unjoined and joined, and single ops joined
    (`gopt.heuristics.schedule.placement.groups`). HEFT also places each op alone. Ops are
    dispatched first come, first served. Decisions of list schedulers are also executed in their own
    order, which is not part of a placement.
    """
    layers = row.sizes.get("layers", 1)
    by_weight = weight_groups(problem)
    alone = np.arange(int(problem.num_ops))
    grouped = [by_weight]
    for groups, counts in ((by_weight, BY_WEIGHT), (alone, BY_SIZE)):
        grouped += [join_groups(problem, groups, k * row.devices) for k in counts]
    split = [lambda: experts.by_layer(step, problem, row.family, layers)]
    if row.family in RECURRENT:
        split.append(lambda: experts.by_step(step, problem))
    found = {
        "one device": best(problem, [lambda: np.zeros(problem.shape.ops, np.int32)]),
        "expert": best(problem, split),
        "m-ETF": best(problem, [partial(memory_etf, problem, g) for g in grouped]),
    }
    for name, by in PARTITIONED.items():
        found[name] = partitioned(problem, by_weight if by == "weight" else None, seeds)
        found[f"{name}, repaired"] = repaired(problem, found[name], by_weight)
    schedulers = {
        "critical path": [partial(critical_path, problem, g) for g in grouped],
        "HEFT": [partial(heft, problem, g) for g in (None, *grouped)],
        "ETF": [partial(etf, problem)],
    }
    for name, every in schedulers.items():
        began = time.perf_counter()
        keys = [schedule() for schedule in every]
        seconds = time.perf_counter() - began
        devices = [np.asarray(decoding.decode(problem, each).device) for each in keys]
        found[name] = _least(problem, devices, [_first_come(problem, d) for d in devices], seconds)
        own = [_in_order(problem, each) for each in keys]
        found[name + OWN_ORDER] = _least(problem, devices, own, seconds)
    return found


def partitioned(problem: Problem, group: np.ndarray | None, seeds: int) -> Placed:
    """Return the best of METIS with each of `IMBALANCES`, seeds and weights of shared tensors."""
    run = partial(partition_by_time, problem, group)
    parted = [
        partial(run, seed=seed, imbalance=imbalance, shared_out=shared_out)
        for seed in range(1, seeds + 1)
        for imbalance in IMBALANCES
        for shared_out in (True, False)
    ]
    return best(problem, parted)


def repaired(problem: Problem, placed: Placed, group: np.ndarray) -> Placed:
    """Return a placement with groups of ops moved until it fits, if possible; see `fit_memory`."""
    began = time.perf_counter()
    device = fit_memory(problem, placed.device, join_groups(problem, group, 256))
    seconds = placed.seconds + time.perf_counter() - began
    return best(problem, [lambda: device])._replace(tried=placed.tried, seconds=seconds)


def best(problem: Problem, every: Sequence[Callable[[], np.ndarray]]) -> Placed:
    """Return the best of some placements `[N]` or `[n]`, first come, first served."""
    began = time.perf_counter()
    made = [place() for place in every]
    seconds = time.perf_counter() - began
    rows = problem.shape.ops
    devices = [np.pad(device, (0, rows - len(device))).astype(np.int32) for device in made]
    return _least(problem, devices, [_first_come(problem, d) for d in devices], seconds)


def _least(
    problem: Problem, devices: Sequence[np.ndarray], costs: Sequence[Cost], seconds: float
) -> Placed:
    """Return the fastest placement; placements that fit rank before others."""

    def rank(k: int) -> tuple[bool, int]:
        return not fits[k], int(costs[k].makespan)

    fits = [bool((np.asarray(cost.peak) <= problem.capacity).all()) for cost in costs]
    top = min(range(len(costs)), key=rank)
    device = np.asarray(dispatch.legalize_placement(problem, jnp.asarray(devices[top])))
    makespan = float(to_seconds(problem, costs[top].makespan))
    return Placed(device, makespan, fits[top], len(costs), seconds)


@jax.jit
def _first_come(problem: Problem, device: jax.Array) -> Cost:
    return dispatch.evaluate(
        problem, dispatch.placement(problem, dispatch.legalize_placement(problem, device))
    )


_in_order = jax.jit(execution.evaluate)
