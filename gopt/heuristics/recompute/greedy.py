"""One change after the other, each with the most bytes saved for each tick added.

Source: our own; greedy algorithms for knapsacks choose in this way.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Int32

from gopt.cost.recompute.cost import Cost, evaluate
from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices, behind_all

NEAR = 32  # changes that are costed in every round: the best ones when all were costed last
ROUNDS = 16  # rounds until all changes are costed again
LIGHT = 5e-4  # ops of a smaller share of all bytes stay as they are
BLOCK = 256  # numbers of changes are rounded up to multiples, so that few are compiled


def greedy(problem: Problem, budget: int, *, evaluations: int = 50_000) -> Choices:
    """Return a candidate that fits, or the nearest to the budget that single changes reach.

    At first nothing runs again. A change is of one op: it runs again behind the largest gap between
    its readers; or it is held for all readers; or it runs again only for runs that need it. A round
    takes the change that saves most of the excess for each tick that it adds, until the candidate
    fits or nothing helps. Then rounds take changes that save time, while memory stays as good.

    Args:
      problem: one problem.
      budget: memory that a candidate may need, units.
      evaluations: largest number of candidates to cost.
    """
    choices = behind_all(problem, max_runs=2)
    ops, splits = _changes(problem, choices.splits[:, 0])
    problem = problem._replace(excess_shift=_least_shift(problem))
    # Excesses are rounded down: with so much less budget all that is above it counts.
    below = np.int32(max(int(budget) - 2 ** int(problem.excess_shift) + 1, 0))
    now = _wide(_one(problem, choices, below))
    every = np.arange(len(ops))
    near, age, used = every, ROUNDS, 1
    while True:
        tried = near if age < ROUNDS else every
        if used + len(tried) > evaluations:
            return choices
        used += len(tried)
        costs = _wide(_each(problem, choices, ops[tried], splits[tried], below))
        gain = _gains(now, costs, int(budget))
        best = int(np.argmax(gain))
        if gain[best] > 0:
            choices.splits[ops[tried[best]], 0] = splits[tried[best]]
            now = Cost(*(leaf[best] for leaf in costs))
        elif age >= ROUNDS:
            return choices
        if age >= ROUNDS:
            near = np.argsort(-gain, kind="stable")[:NEAR]
        age = 0 if age >= ROUNDS else age + 1 if gain[best] > 0 else ROUNDS


def _gains(now: Cost, costs: Cost, budget: int) -> np.ndarray:
    """Return the value of each change: excess saved for each tick, or ticks saved if it fits."""
    saved, added = now.excess - costs.excess, costs.ticks - now.ticks
    if now.peak > budget and (saved > 0).any():
        return np.where(saved > 0, saved / np.maximum(added, 0.5), -1.0)
    limit = max(budget, int(now.peak))
    as_good = (costs.peak <= limit) & (costs.excess <= now.excess)
    return np.where(as_good, -added, -1.0).astype(np.float64)


def _changes(
    problem: Problem, start: Int32[np.ndarray, " N"]
) -> tuple[Int32[np.ndarray, " M"], Int32[np.ndarray, " M"]]:
    """Return the op and the new split of each change, given the splits without recomputation."""
    n = problem.num_rows
    found = []
    made = np.bincount(problem.producer, problem.size, minlength=n)
    is_open = start > 0
    heavy = is_open & (made >= LIGHT * made[is_open].sum())
    for op in np.flatnonzero(heavy).tolist():
        readers = problem.readers[problem.first_reader[op] :][: start[op]]
        gap = int(np.argmax(np.diff(readers))) + 1 if len(readers) > 1 else 0
        found += [(op, split) for split in {0, gap, int(start[op])}]
    length = BLOCK * max(-(-len(found) // BLOCK), 1)
    found += [(n - 1, 0)] * (length - len(found))
    ops, splits = np.array(found, np.int32).T
    return ops, splits


def _least_shift(problem: Problem) -> Int32[np.ndarray, ""]:
    """Return the finest count of excesses for two runs of each op: see `Problem.excess_shift`."""
    most = 2 * int(problem.size.sum(dtype=np.int64)) + int(problem.workspace.max())
    bits = (2 * int(problem.num_ops) * most).bit_length()
    return np.minimum(problem.excess_shift, np.int32(max(bits - 31, 0)))


def _wide(cost: Cost) -> Cost:
    return Cost(*(np.asarray(leaf, np.int64) for leaf in cost))


_one = jax.jit(evaluate)


@jax.jit
def _each(problem: Problem, choices: Choices, ops: Any, splits: Any, budget: Any) -> Cost:
    """Return the cost of each single change."""

    def changed(op: Any, split: Any) -> Cost:
        moved = jax.numpy.asarray(choices.splits).at[op, 0].set(split)
        return evaluate(problem, Choices(None, moved), budget)

    return jax.vmap(changed)(ops, splits)
