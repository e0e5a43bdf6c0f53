"""BRKGA from the proposals of an action."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.execution import Keys, keys_shape, population_cost
from gopt.problem import Problem
from gopt.search import brkga
from gopt.search.proposals import beta_quantiles, from_quantiles
from gopt.systems.regal.policy import Settings

Tree = Any


def betas(bins: int) -> np.ndarray:
    """Returns the quantiles of the Betas that actions choose from, float32 `[bins², points]`.

    Row mean · bins + deviation. Means are even in (0, 1). Deviations grow geometrically from
    0.02 of the largest that the mean allows to that of the uniform distribution, so that a mean
    of 1/2 with the last deviation is close to uniform.
    """
    mean = (np.arange(bins) + 0.5) / bins
    share = np.geomspace(0.02, 1 / np.sqrt(3), bins)
    return beta_quantiles(mean[:, None], share * np.sqrt(mean * (1 - mean))[:, None]).reshape(
        bins * bins, -1
    )


def proposal(problem: Problem, action: jax.Array, settings: Settings) -> brkga.Proposal:
    """Returns the proposal of one action, int32 `[N, D + 1, 2]`.

    Transfers of a tensor, to whatever device, take the Beta of the priority of its first reader,
    so that it is sent when the turn of that op has come. The last ones of the candidates stay
    uniform (see `Settings.trust`).
    """
    bins = settings.bins
    row = action[..., 0] * bins + action[..., 1]
    tensors = problem.shape.tensors
    reader = jax.ops.segment_min(problem.consumer, problem.tensor, tensors)
    reader = jnp.minimum(reader, problem.shape.ops - 1)  # of tensors that nobody reads
    table = jnp.asarray(betas(bins))

    def propose(u: Keys) -> Keys:
        count = round(settings.trust * len(u.priority))
        rows = Keys(device=row[:, :-1], priority=row[:, -1], transfer=row[reader, -1:])
        return jax.tree.map(
            lambda row, u: jnp.concatenate([from_quantiles(table, row, u[:count]), u[count:]]),
            rows,
            u,
        )

    return propose


def search(
    key: jax.Array,
    problem: Problem,
    action: jax.Array,
    *,
    objective: str,
    evaluations: int,
    settings: Settings,
    population: brkga.Settings | None = None,
    given: Keys | None = None,
) -> brkga.Result:
    """Returns what BRKGA finds on one problem from the proposals of one action.

    Args:
      key: random key.
      problem: one problem.
      action: int32 `[N, D + 1, 2]`, as of `gopt.systems.regal.action`.
      objective: what to minimise, one of `gopt.cost.execution.OBJECTIVES`.
      evaluations: how many candidates to evaluate.
      settings: the settings of the policy.
      population: sizes of a generation.
      given: candidates `[K, ...]` to start from.

    Raises:
      ValueError: the action is for another number of ops or devices.
    """
    expected = (problem.shape.ops, problem.num_devices + 1, 2)
    if action.shape != expected:
        raise ValueError(f"action has shape {action.shape}: expected {expected}")
    return brkga.minimize(
        key,
        population_cost(problem, objective),
        keys_shape(problem),
        evaluations=evaluations,
        settings=population,
        proposal=proposal(problem, action, settings),
        given=given,
    )


def rewards(
    keys: jax.Array,
    problem: Problem,
    standard: jax.Array,
    actions: jax.Array,
    *,
    objective: str,
    evaluations: int,
    settings: Settings,
    population: brkga.Settings | None = None,
) -> jax.Array:
    """Returns -cost / standard cost of actions, float32 `[A]`.

    Every argument has a leading axis `A`, whose rows are independent, so that the function can
    be spread over devices by `gopt.parallel.spread`. One search runs after another: a
    population is what is evaluated at once.

    Args:
      keys: random keys of the searches.
      problem: problems.
      standard: costs that standard BRKGA reaches on them.
      actions: int32 `[A, N, D + 1, 2]`.
      objective: as in `search`, like the rest.
      evaluations: how many candidates each search evaluates.
      settings: the settings of the policy.
      population: sizes of a generation.
    """

    def one(row: tuple[jax.Array, Problem, jax.Array]) -> jax.Array:
        return search(
            *row,
            objective=objective,
            evaluations=evaluations,
            settings=settings,
            population=population,
        ).cost

    return -jax.lax.map(one, (keys, problem, actions)) / standard
