"""Place the rows of the table without a search: experts, METIS, list scheduling."""

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
from experiments.harness.runs import Runs, kept_runs, timed
from gopt.cost.schedule import decoding, dispatch, execution
from gopt.cost.schedule.decoding import Cost
from gopt.cost.schedule.problem import Problem, to_seconds
from gopt.heuristics import critical_path, etf, fit_memory, heft, memory_etf
from gopt.heuristics.schedule.placement.groups import join_groups, weight_groups
from gopt.heuristics.solvers.metis import partition_by_time
from gopt.program.hashing import digest_arrays
from gopt.systems import go

BY_WEIGHT, BY_SIZE = (4, 8, 16, 32, 64), (4, 16, 64)  # groups for each device
RECURRENT = ("rnnlm", "gnmt")
IMBALANCES = (1.03, 1.2, 1.6)  # imbalances that METIS may leave
PARTITIONED = {"METIS": "op", "METIS, by weight": "weight"}  # units that METIS places
OWN_ORDER = ", own order"


class Given(NamedTuple):
    """A decision that is known without a search, and the effort of finding it.

    Attributes:
      decision: decision, `[N]`.
      order: float32 `[N]`, priorities to which shifts are added; None for first come, first served.
      makespan: makespan, s, in the own order if there is one; infinite if the memory of a device
        does not suffice.
      seconds: CPU time of finding it, s; fusions, orders and costs take little.
    """

    decision: go.OpDecisions
    order: Any
    makespan: float
    seconds: float

    @property
    def runs(self) -> Runs:
        """The decision as the only run of a method."""
        cost = np.array([self.makespan if np.isfinite(self.makespan) else np.nan])
        return Runs(cost, np.array([1]), cost[None], self.decision, self.seconds)


def decided(device: np.ndarray, fused: np.ndarray | None = None) -> go.OpDecisions:
    """Return a decision without shifts, `[N]`."""
    device = np.asarray(device, np.int32)
    level = np.zeros_like(device) if fused is None else fused.astype(np.int32)
    return go.OpDecisions(device, np.full_like(device, go.IN_ORDER), level)


def kept(folder: Path, problem: Problem, step: Step, row: Row, seeds: int) -> dict[str, Given]:
    """Return the result of `placed`, read from a folder if it is there.

    Raises:
      ValueError: the file is about something else, or cannot be read.
    """

    def make() -> dict[str, Runs]:
        return {name: one.runs for name, one in placed(problem, step, row, seeds).items()}

    tried = {"weights": BY_WEIGHT, "sizes": BY_SIZE, "imbalances": IMBALANCES, "seeds": seeds}
    about = {"problem": digest_arrays(problem), "partitioned": PARTITIONED} | tried
    found = kept_runs(
        store.Store(folder / "heuristics.sqlite", about), "heuristics", make, go.OpDecisions
    )
    steps = {name: float(np.nan_to_num(runs.cost[0], nan=np.inf)) for name, runs in found.items()}
    return {m: Given(runs.best, None, steps[m], runs.seconds) for m, runs in found.items()}


def placed(problem: Problem, step: Step, row: Row, seeds: int) -> dict[str, Given]:
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
        keys, seconds = timed(partial(_all, every))
        devices = [np.asarray(decoding.decode(problem, each).device) for each in keys]
        found[name] = _least(problem, devices, [_first_come(problem, d) for d in devices], seconds)
        own = [_in_order(problem, each) for each in keys]
        found[name + OWN_ORDER] = _least(problem, devices, own, seconds)
    return found


def partitioned(problem: Problem, group: np.ndarray | None, seeds: int) -> Given:
    """Return the best of METIS with each of `IMBALANCES`, seeds and weights of shared tensors."""
    run = partial(partition_by_time, problem, group)
    parted = [
        partial(run, seed=seed, imbalance=imbalance, divide_transfer_cost=divide_transfer_cost)
        for seed in range(1, seeds + 1)
        for imbalance in IMBALANCES
        for divide_transfer_cost in (True, False)
    ]
    return best(problem, parted)


def repaired(problem: Problem, placed: Given, group: np.ndarray) -> Given:
    """Return a placement with groups of ops moved until it fits, if possible; see `fit_memory`."""
    groups = join_groups(problem, group, 256)
    found = best(problem, [lambda: fit_memory(problem, placed.decision.placement, groups)])
    return found._replace(seconds=placed.seconds + found.seconds)


def best(problem: Problem, every: Sequence[Callable[[], np.ndarray]]) -> Given:
    """Return the best of some placements `[N]` or `[n]`, first come, first served."""
    made, seconds = timed(partial(_all, every))
    rows = problem.shape.ops
    devices = [np.pad(device, (0, rows - len(device))).astype(np.int32) for device in made]
    return _least(problem, devices, [_first_come(problem, d) for d in devices], seconds)


def _least(
    problem: Problem, devices: Sequence[np.ndarray], costs: Sequence[Cost], seconds: float
) -> Given:
    """Return the fastest placement; placements that fit rank before others."""

    def rank(k: int) -> tuple[bool, int]:
        return not fits[k], int(costs[k].makespan)

    fits = [bool((np.asarray(cost.peak) <= problem.capacity).all()) for cost in costs]
    top = min(range(len(costs)), key=rank)
    device = np.asarray(dispatch.legalize_placement(problem, jnp.asarray(devices[top])))
    makespan = float(to_seconds(problem, costs[top].makespan)) if fits[top] else np.inf
    return Given(decided(device), None, makespan, seconds)


def _all(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@jax.jit
def _first_come(problem: Problem, device: jax.Array) -> Cost:
    return dispatch.evaluate(
        problem, dispatch.placement(problem, dispatch.legalize_placement(problem, device))
    )


_in_order = jax.jit(execution.evaluate)
