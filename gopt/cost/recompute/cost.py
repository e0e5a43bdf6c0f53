"""Time and peak memory of ops that may run more than once.

A candidate stands for a sequence of runs (see `gopt.cost.recompute.runs`). A reader reads the
latest run before it. A run holds its tensors until their last reader before the next run of the
same op; tensors without readers are freed after the run. Pinned tensors are held to the end. Inputs
are held from the start, and freed like other tensors. At the last read of a tensor, the result of
the reader may take its place (`Problem.in_place`).

Written for one candidate, as loops over scalars; `jax.vmap` runs candidates one after another, as
in `gopt.cost.schedule.execution`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int32

from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import (
    NEVER,
    Choices,
    check_choices,
    first_positions,
    positions,
    slots,
)
from gopt.cost.schedule.engine.cells import load, store
from gopt.xla.calls import uninlined


class Cost(NamedTuple):
    """The cost of one candidate, or of a population with leading axis `P`.

    Attributes:
      ticks: int32 `[]`; time of all runs, ticks.
      peak: int32 `[]`; peak memory, units.
      excess: int32 `[]`; memory above the budget, summed over all runs, in 2^`excess_shift` units,
        each rounded down. It falls before the peak does, so it leads a search to the budget.
    """

    ticks: Any
    peak: Any
    excess: Any


def evaluate(problem: Problem, choices: Choices, budget: Any) -> Cost:
    """Return the cost of one candidate; compose with `jax.vmap` for a population.

    Args:
      problem: one problem.
      choices: one candidate.
      budget: bytes for the excess, int32 `[]`, units.

    Raises:
      ValueError: the candidate does not have the shapes of the problem.
    """
    check_choices(problem, choices)
    problem, choices = jax.tree.map(jnp.asarray, (problem, choices))
    return _evaluate(problem, choices, jnp.asarray(budget, jnp.int32))


def sequence(problem: Problem, choices: Choices) -> Int32[jax.Array, "R N"]:
    """Return the place of each run in the sequence of a candidate.

    Args:
      problem: one problem.
      choices: one candidate.

    Returns:
      Places from 0; `NEVER` for runs that do not happen. Rows and columns of padding are undefined.

    Raises:
      ValueError: the candidate does not have the shapes of the problem.
    """
    check_choices(problem, choices)
    return _sequence(*jax.tree.map(jnp.asarray, (problem, choices)))


def runs_of(problem: Problem, choices: Choices | None) -> list[int]:
    """Return the ops of a candidate in the order in which they run, on the host.

    Args:
      problem: one problem.
      choices: one candidate; `None` runs each op once, in the order of the program.
    """
    choices = choices or Choices(None, np.zeros((problem.num_rows, 0), np.int32))
    place = np.asarray(_jitted_sequence(problem, choices))[:, : int(problem.num_ops)]
    run, op = np.nonzero(place < NEVER)
    return op[np.argsort(place[run, op])].tolist()


def cost_of_runs(problem: Problem, runs: Sequence[int]) -> tuple[int, int]:
    """Return ticks and peak memory of any sequence of runs, on the host.

    Args:
      problem: one problem.
      runs: ops in the order in which they run, some more than once.

    Raises:
      ValueError: an op is missing or unknown, an op that may not repeat runs twice, or an op runs
        before an op that it reads. The message names the run.
    """
    n, uses = int(problem.num_ops), int(problem.num_uses)
    reads: list[list[int]] = [[] for _ in range(n)]
    in_place: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    columns = (problem.tensor, problem.consumer, problem.in_place)
    for tensor, op, units in zip(*(column[:uses].tolist() for column in columns), strict=True):
        reads[op].append(tensor)
        in_place[op].append((tensor, units))
    makes: list[list[int]] = [[] for _ in range(n)]
    for tensor, op in enumerate(problem.producer.tolist()):
        if op < n:
            makes[op].append(tensor)
    held: dict[int, int] = {}  # by tensor, where its latest run is in `lives`
    lives: list[tuple[int, int, int]] = []  # first step, last step, tensor
    ran: set[int] = set()
    for step, op in enumerate(map(int, runs)):
        if not 0 <= op < n:
            raise ValueError(f"runs[{step}] is {op}: expected an op in 0..{n - 1}")
        if op in ran and not problem.may_repeat[op]:
            raise ValueError(f"runs[{step}] is op {op} again, which may not repeat")
        ran.add(op)
        for tensor in reads[op]:
            if tensor not in held:
                maker = problem.producer[tensor]
                raise ValueError(f"runs[{step}] is op {op}: it reads op {maker}, which has not run")
            first, _, _ = lives[held[tensor]]
            lives[held[tensor]] = first, step, tensor
        for tensor in makes[op]:
            held[tensor] = len(lives)
            lives.append((0 if problem.is_input[op] else step, step, tensor))
    if len(ran) < n:
        raise ValueError(f"op {min(set(range(n)) - ran)} is not among the runs")
    change = np.zeros(len(runs) + 1, np.int64)
    for first, last, tensor in lives:
        change[first] += problem.size[tensor]
        change[len(runs) if problem.pinned[tensor] else last + 1] -= problem.size[tensor]
    order = np.asarray(runs)
    last_read = {(last, tensor) for _, last, tensor in lives}
    places = [
        max((units for tensor, units in in_place[op] if (step, tensor) in last_read), default=0)
        for step, op in enumerate(order.tolist())
    ]
    use = np.cumsum(change)[:-1] + problem.workspace[order] - np.array(places, np.int64)
    return int(problem.ticks[order].sum(dtype=np.int64)), int(use.max(initial=0))


@jax.custom_batching.sequential_vmap
@uninlined
def _evaluate(problem: Problem, choices: Choices, budget: jax.Array) -> Cost:
    place = _sequence(problem, choices)
    happens = (place < NEVER) & (jnp.arange(problem.num_rows) < problem.num_ops)[None]
    ticks = jnp.sum(jnp.where(happens, problem.ticks[None], 0), dtype=jnp.int32)
    last = _last_reads(problem, place)
    saved = _saved(problem, place, last)
    return Cost(ticks, *_memory(problem, place, happens, last, saved, budget))


def _sequence(problem: Problem, choices: Choices) -> jax.Array:
    first = first_positions(problem, choices.priority)
    return positions(problem, slots(problem, first, choices.splits))


_jitted_sequence = jax.jit(sequence)


@uninlined
def _last_reads(problem: Problem, place: jax.Array) -> list[jax.Array]:
    """Return the place of the last reader of each run of each tensor, R × int32 `[T]`."""
    runs = len(place)

    def visit(state: Any) -> Any:
        k, lasts = state
        tensor, reader = load(problem.tensor, k), load(problem.consumer, k)
        maker = load(problem.producer, tensor)
        made = [load(row, maker) for row in place]
        reads = [load(row, reader) for row in place]
        moved = []
        for run, last in enumerate(lasts):
            latest = load(last, tensor)
            until = made[run + 1] if run + 1 < runs else NEVER
            for read in reads:
                is_read = (read > made[run]) & (read < until)
                latest = jnp.where(is_read, jnp.maximum(latest, read), latest)
            moved.append(store(last, tensor, latest))
        return k + 1, moved

    state = jnp.int32(0), [row[problem.producer] for row in place]
    return lax.while_loop(lambda s: s[0] < problem.num_uses, visit, state)[1]


@uninlined
def _saved(problem: Problem, place: jax.Array, last: list[jax.Array]) -> jax.Array:
    """Return the memory of the place that a run's result takes, int32 `[R·N + 2]`, by place."""
    never = place.size + 1
    ends = jnp.stack(last)[:, problem.tensor]
    reads = place[:, problem.consumer]
    is_last = jnp.any(reads[:, None] == ends[None], axis=1)
    at = jnp.where(is_last & (reads < NEVER), reads, never)
    saved = jnp.broadcast_to(problem.in_place[None], at.shape)
    return jnp.zeros(never + 1, jnp.int32).at[at.ravel()].max(saved.ravel())


@uninlined
def _memory(
    problem: Problem,
    place: jax.Array,
    happens: jax.Array,
    last: list[jax.Array],
    saved: jax.Array,
    budget: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the peak memory and the excess."""
    runs, n = place.shape
    rows = runs * n + 2
    never = rows - 1
    made = jnp.where(happens, place, never)[:, problem.producer]
    freed = jnp.where(problem.pinned[None], never, jnp.minimum(jnp.stack(last) + 1, never))
    freed = jnp.where(made == never, never, freed)
    given = problem.is_input[problem.producer][None] & (made < never)
    born = jnp.where(given, 0, made)
    size = jnp.broadcast_to(problem.size[None], made.shape).ravel()
    change = jnp.zeros(rows, jnp.int32).at[born.ravel()].add(size)
    change = change.at[freed.ravel()].add(-size)
    held = jnp.broadcast_to(problem.workspace[None], place.shape).ravel()
    work = (-saved).at[jnp.where(happens, place, never).ravel()].add(held)
    count = jnp.sum(happens, dtype=jnp.int32)

    def add(state: Any) -> Any:
        k, live, peak, excess = state
        live = live + load(change, k)
        now = live + load(work, k)
        peak = jnp.maximum(peak, now)
        excess = excess + (jnp.maximum(now - budget, 0) >> problem.excess_shift)
        return k + 1, live, peak, excess

    zero = jnp.int32(0)
    _, _, peak, excess = lax.while_loop(lambda s: s[0] < count, add, (zero, zero, zero, zero))
    return peak, excess
