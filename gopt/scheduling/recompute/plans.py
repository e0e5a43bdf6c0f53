"""Plans: what runs again, searched for so many bytes, and re-scored as XLA packs its buffers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.runs import Choices
from gopt.heuristics.recompute import RULES, square_root, without_superfluous
from gopt.host.progress import Progress
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.on_this_device import schedule_of
from gopt.scheduling.recompute.program import MAX_RUNS, Repeatable, expanded
from gopt.scheduling.recompute.search import OVER, search
from gopt.search.loop import Slices
from gopt.search.parallel import on_host

SEARCHES = 4  # for one plan and one order, at most
AGAIN = 0.3  # share of the evaluations for a search that goes on from another one
INSIDE = 0.25  # share of a segment's bytes that a TPU holds in main memory, see `segments_plan`
NEAR = 1.1  # numbers of segments with up to so many times the fewest bytes count as equal
PARTS = 32  # a further search aims at least one of so many parts of the bytes lower


class Plan(NamedTuple):
    """A sequence of runs.

    Attributes:
      runs: ops in the order in which they run, some more than once.
      schedule: the runs as kernels in order; its peak is without arguments, as XLA packs buffers.
      seconds: time of all runs by the model, s.
      peak: peak memory by the model of the search, bytes without arguments.
    """

    runs: list[int]
    schedule: KernelSchedule
    seconds: float
    peak: int

    @property
    def packed(self) -> int:
        """Bytes without arguments, as XLA packs buffers."""
        (packed,) = self.schedule.peak
        return packed


def plan_of(found: Repeatable, runs: list[int]) -> Plan:
    """Return the plan of a sequence of runs."""
    problem = found.problem
    ticks, peak = cost_of_runs(problem, runs)
    kernels = expanded(found, runs)
    schedule = schedule_of(kernels, kernels.program)
    seconds = ticks * float(problem.tick)
    return Plan(runs, schedule, seconds, peak * int(problem.unit) - found.given)


def search_plan(
    found: Repeatable, limit: int, aim: int, evaluations: int, seed: int, work: Progress
) -> Plan:
    """Return the fastest plan found that fits when it is packed, or the one nearest to it.

    Packed buffers leave gaps. If only the gaps of a plan are too much, the search is repeated for
    fewer bytes. If its peak is, the search goes on with one run more of each op. Published rules
    are tried, too. If the best plan fits, later runs that the bytes do not need are left out. If
    nothing fits, the other order of the kernels is tried.

    Args:
      found: kernels that may run more than once.
      limit: bytes without arguments that a plan may need, as XLA packs buffers.
      aim: bytes without arguments for the search; at most `limit`.
      evaluations: number of candidates of one search.
      seed: random seed.
      work: shows progress, and ends the search.
    """

    def badness(plan: Plan) -> tuple[int, float]:
        return max(plan.packed - limit, 0), plan.seconds

    plans: list[Plan] = []
    start, max_runs, initial = aim, 2, None
    for attempt in range(SEARCHES):
        key = jax.random.key(SEARCHES * seed + attempt)
        choices = _search(found, aim, evaluations, max_runs, initial, key, work)
        plan = plan_of(found, runs_of(found.problem, choices))
        plans.append(plan)
        if plan.packed <= limit or work.is_over:
            break
        if plan.peak <= aim:  # gaps alone are too much
            aim = plan.peak - max(plan.packed - limit, aim // PARTS)
            initial = choices if max_runs > 2 else None
        elif max_runs < MAX_RUNS:
            max_runs += 1
            initial = _with_another_run(choices)
        else:
            break
        if aim <= 0:
            break
    plans += _rules(found, limit, plans, work)
    best = min(plans, key=badness)
    if best.packed <= limit and not work.is_over:
        plans.append(_without_superfluous(found, best, limit, work))
    if found.other is not None and not work.is_over and best.packed > limit:
        plans.append(search_plan(found.other, limit, start, evaluations, seed, work))
    return min(plans, key=badness)


def segments_plan(found: Repeatable) -> Plan:
    """Return a plan of segments with few bytes, for a machine on which XLA orders kernels.

    On a TPU, values that cross the segments take most of the bytes. Values inside a segment live
    only briefly, and XLA keeps many of them near the cores. A search by the model does not see
    that. `INSIDE` is our choice, by the bytes of 2 to 8 segments of a transformer on a TPU v5e; for
    GPUs it was not measured.

    Args:
      found: kernels that may run more than once.
    """
    problem = found.problem
    return plan_of(found, runs_of(problem, square_root(problem, inside=INSIDE, near=NEAR)))


def _rules(found: Repeatable, limit: int, plans: Sequence[Plan], work: Progress) -> Iterator[Plan]:
    """Yield plans of the rules that could be better than plans of the search."""
    problem, seconds = found.problem, min(plan.seconds for plan in plans)
    has_plan = any(plan.packed <= limit for plan in plans)
    units = found.units(limit)
    for name, rule in RULES.items():
        if name == "greedy" or work.is_over:  # the search starts from it
            continue
        runs = rule(problem, units)
        if runs is None:
            continue
        ticks, peak = cost_of_runs(problem, runs)
        if not has_plan or (peak <= units and ticks * float(problem.tick) < seconds):
            yield plan_of(found, runs)


def _without_superfluous(found: Repeatable, plan: Plan, limit: int, work: Progress) -> Plan:
    """Return a plan that fits, without later runs that the bytes do not need."""

    def show(done: int) -> bool:
        work.advance(done)
        return not work.is_over

    aim = limit - plan.packed + plan.peak
    while aim >= plan.peak:
        work.phase("superfluous runs left out", len(plan.runs) - len(set(plan.runs)))
        runs = without_superfluous(found.problem, plan.runs, found.units(aim), show=show)
        if runs == plan.runs:
            break
        shorter = plan_of(found, runs)
        if shorter.packed <= limit:
            return shorter
        aim -= max(shorter.packed - limit, aim // PARTS)  # gaps
    return plan


@on_host
def _search(
    found: Repeatable,
    aim: int,
    evaluations: int,
    max_runs: int,
    initial: Choices | None,
    key: jax.Array,
    work: Progress,
) -> Choices:
    problem = found.problem

    def text(cost: float) -> str:
        return "above the budget" if cost >= OVER else f"time {100 * cost - 100:+.1f} %"

    result = search(
        key,
        problem,
        budget=found.units(aim),
        evaluations=evaluations if initial is None else max(int(AGAIN * evaluations), 1),
        max_runs=max_runs,
        initial=jax.tree.map(lambda leaf: leaf[None], initial),
        run=Slices(work, "search for what runs again", text),
    )
    return jax.device_get(result.best)


def _with_another_run(choices: Choices) -> Choices:
    return choices._replace(splits=np.pad(choices.splits, ((0, 0), (0, 1))))
