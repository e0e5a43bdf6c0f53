"""Configurations to compare: XLA's own programs, sets of kernels by heuristics, and by a search."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool

from gopt.cost.fusion.cost import kernels_of
from gopt.cost.fusion.problem import FusionProblem
from gopt.fusion import KernelTimes, Rates, groups_of, members, own_fusion
from gopt.fusion.plan import Fusion
from gopt.fusion.search import FusionCost, FusionSearch, FusionSearchResult
from gopt.graph.tracing import TracedGraph, from_program
from gopt.heuristics.fusion.presets import instruction_fusion, priority_fusion
from gopt.host.progress import Progress
from gopt.plots.units import format_seconds
from gopt.program.program import Program
from gopt.xla import Group
from gopt.xla.ordered import MEMORY_SCHEDULER


def parts_of(
    traced: TracedGraph, problem: FusionProblem, fuse: Bool[np.ndarray, " N"]
) -> tuple[Group, ...]:
    """Return the kernels of a configuration as groups of equations.

    Args:
      traced: the program and its graph.
      problem: of the graph.
      fuse: bool `[N]`.
    """
    found = jax.device_get(_decoded(problem, fuse))
    return groups_of(traced, problem, members(found, problem))


_decoded = jax.jit(kernels_of)


class Found(NamedTuple):
    """A configuration that a heuristic or the search has found."""

    fuse: np.ndarray  # bool [N]
    parts: tuple[Group, ...]  # its kernels
    seconds: float  # the sum of their times


def configurations(
    program: Program,
    kernels: KernelTimes,
    find: FusionSearch,
    rates: Rates,
    evaluations: int,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, Found], np.ndarray]:
    """Return configurations by what found them, and the best seconds after each evaluation.

    Both are empty where no op can be fused, or the time was over before one was costed.
    """
    if not program.equations:  # not even a graph, where there are no inputs
        return {}, np.zeros(0)
    traced = from_program(program)
    problem = rates.problem(traced.graph)
    if not int(problem.num_choices):
        return {}, np.zeros(0)

    def sum_of_kernels(fuse: np.ndarray) -> float:
        return kernels.of(program, parts_of(traced, problem, fuse))

    found = {
        "XLA's kernels, apart": own_fusion(traced, problem),
        "instruction fusion": instruction_fusion(problem),
        "priority fusion": priority_fusion(problem),
    }
    progress.phase("kernels of heuristics", len(found))
    costs: dict[str, float] = {}
    with progress.interruptible():
        for name, fuse in found.items():
            if progress.is_over:
                break
            costs[name] = sum_of_kernels(fuse)
            progress.advance(len(costs), f"best {format_seconds(min(costs.values()))}")
    if not costs:
        return {}, np.zeros(0)
    found = {name: found[name] for name in costs}
    start = found[min(costs, key=costs.__getitem__)]
    result = _cut_short(
        partial(find, jax.random.key(seed), traced.graph, problem, evaluations=evaluations),
        sum_of_kernels,
        start,
        evaluations,
        progress,
    )
    found["searched"] = result.fuse
    ways = {
        name: Found(fuse, parts_of(traced, problem, fuse), sum_of_kernels(fuse))
        for name, fuse in found.items()
    }
    return ways, result.seconds


class _TimeIsOver(BaseException):
    """The search may not cost another configuration."""


def _cut_short(
    find: Callable[..., FusionSearchResult],
    cost: FusionCost,
    start: np.ndarray,
    evaluations: int,
    progress: Progress,
) -> FusionSearchResult:
    """Return the result of a search, or its best configuration when its time is over.

    Args:
      find: search, with all arguments but the cost and the start.
      cost: time of a configuration, s.
      start: configuration to begin with.
      evaluations: number of configurations that the search may cost.
      progress: shows progress, and knows when the time is over.
    """
    progress.phase("configurations", evaluations)
    best, history = start, [cost(start)]

    def counted(fuse: np.ndarray) -> float:
        nonlocal best
        if progress.is_over:
            raise _TimeIsOver
        seconds = cost(fuse)
        if seconds < history[-1]:
            best = fuse
        history.append(min(history[-1], seconds))
        progress.advance(len(history) - 1, f"best {format_seconds(history[-1])}")
        return seconds

    with progress.interruptible(), contextlib.suppress(_TimeIsOver):
        return find(cost=counted, start=start)
    return FusionSearchResult(best, np.array(history[1:] or history))


def decisions_of(has_simpler: bool, found: dict[str, Found]) -> dict[str, Fusion]:
    """Return XLA's programs, and configurations that differ, by name.

    Args:
      has_simpler: whether the simplified equations differ from the traced ones.
      found: configurations by name.
    """
    saving = MEMORY_SCHEDULER["cpu"]
    decisions = {}
    for name in ("XLA", "XLA, simplified") if has_simpler else ("XLA",):
        for scheduler, options in (("", {}), (", memory scheduler", saving)):
            decisions[name + scheduler] = Fusion(name != "XLA", None, None, options)
    for name, (fuse, parts, _) in found.items():
        if all(parts != decision.groups for decision in decisions.values()):
            # With the memory scheduler kernels run one after another, as they were timed.
            decisions[name] = Fusion(True, fuse, parts, saving)
    return decisions
