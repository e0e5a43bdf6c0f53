"""The strongest search without training for what to run again under a budget of bytes.

The greedy rule of `gopt.heuristics.recompute` comes first, in the order of the program. Annealing
over the candidates of `gopt.cost.recompute.runs` goes on from it, and also changes the order.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from gopt.cost.recompute.cost import Cost, evaluate
from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices, behind_all
from gopt.heuristics.recompute.greedy import greedy
from gopt.scheduling.recompute.moves import Moves, moves, neighbour
from gopt.search import annealing
from gopt.search.loop import Loop, LoopResult, Run, whole

# Our choices, by measurement on small instances and on a training step of 850 kernels.
GREEDY = 0.7  # largest share of the evaluations for the greedy rule
FIRST, LAST = 12.0, 0.3  # temperatures times the number of ops to the power 3/2
# Cost of a candidate that does not fit, and weights of its excess over all runs and at its peak.
OVER, EXCESS, PEAK = 10.0, 100.0, 10.0


def objective(problem: Problem, cost: Cost, budget: Any) -> jax.Array:
    """Return a cost as one number to minimise, float32 `[...]`.

    A candidate that fits costs its time as a share of the time without recomputation. One that does
    not costs `OVER` more, `EXCESS` times the mean excess of a run, and `PEAK` times the largest
    excess, both as shares of the budget.

    Args:
      problem: one problem.
      cost: costs of any number of candidates.
      budget: int32 `[]`, units.
    """
    once = jnp.sum(problem.ticks, dtype=jnp.int32).astype(jnp.float32)
    time = cost.ticks.astype(jnp.float32) / jnp.maximum(once, 1)
    runs = jnp.maximum(problem.num_ops, 1).astype(jnp.float32)
    unit = jnp.exp2(problem.excess_shift.astype(jnp.float32)) / runs
    share = jnp.maximum(jnp.asarray(budget), 1).astype(jnp.float32)
    excess = EXCESS * cost.excess.astype(jnp.float32) * unit / share
    excess += PEAK * (cost.peak.astype(jnp.float32) - share) / share
    return jnp.where(cost.peak <= budget, time, OVER + excess + time)


def search(
    key: PRNGKeyArray,
    problem: Problem,
    *,
    budget: int,
    evaluations: int,
    max_runs: int = 2,
    initial: Choices | None = None,
    run: Run | None = None,
) -> LoopResult:
    """Return the fastest candidate found that fits, or the one nearest to the budget.

    Args:
      key: random key.
      problem: one problem, on the host.
      budget: memory that a candidate may need, units.
      evaluations: number of candidates to evaluate, the given ones included.
      max_runs: largest number of runs of an op.
      initial: candidates to start from, with priorities, in place of the greedy rule's, `[K, ...]`.
      run: how loops run, see `gopt.search.loop`; by default all in one jitted call.

    Raises:
      ValueError: `evaluations` is less than one.
    """
    if not evaluations >= 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    steps = evaluations
    if initial is None:
        start = _greedy(problem, budget, evaluations, max_runs)
        initial = jax.tree.map(lambda leaf: leaf[None], start)
        # What the rule leaves of its share is not used: other numbers would be compiled anew.
        steps -= int(GREEDY * evaluations)
    # A power of two: few settings, so that few programs are compiled.
    scale = 2.0 ** -np.ceil(1.5 * np.log2(max(int(problem.num_ops), 1)))
    settings = annealing.Settings(1, float(FIRST * scale), float(LAST * scale))
    given = problem, moves(problem), initial, np.int32(budget)
    options = {"evaluations": max(steps, len(initial.splits)), "settings": settings}
    if run is None:
        return _whole(key, *given, **options)
    return run(_annealing, key, *given, **options)


def _greedy(problem: Problem, budget: int, evaluations: int, max_runs: int) -> Choices:
    order = np.arange(problem.num_rows, dtype=np.float32) / problem.num_rows
    start = behind_all(problem, max_runs)._replace(priority=order)
    if max_runs > 1:
        found = greedy(problem, budget, evaluations=int(GREEDY * evaluations))
        start.splits[:, :1] = found.splits
    return start


def _annealing(
    key: PRNGKeyArray,
    problem: Problem,
    tables: Moves,
    initial: Choices,
    budget: Any,
    *,
    evaluations: int,
    settings: annealing.Settings,
) -> Loop:
    """Return the annealing as a loop."""
    problem = jax.tree.map(jnp.asarray, problem)

    def cost(choices: Choices) -> jax.Array:
        found = jax.vmap(evaluate, (None, 0, None))(problem, choices, budget)
        return objective(problem, found, budget)

    return annealing.loop(
        key,
        cost,
        jax.tree.map(lambda leaf: leaf[0], initial),
        evaluations=evaluations,
        settings=settings,
        neighbour=partial(neighbour, problem, tables),
        initial=jax.tree.map(jnp.asarray, initial),
    )


@partial(jax.jit, static_argnames=("evaluations", "settings"))
def _whole(*given: Any, **options: Any) -> LoopResult:
    return whole(_annealing, *given, **options)
