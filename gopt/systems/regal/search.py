"""BRKGA from the proposals of an action."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, PRNGKeyArray

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.evolve import evolve, loop
from gopt.search import brkga
from gopt.search.loop import Loop, LoopResult, Run, whole
from gopt.search.proposals import beta_quantiles, from_quantiles
from gopt.search.result import SearchResult
from gopt.systems.regal.actions import Action
from gopt.systems.regal.inputs import Inputs
from gopt.systems.regal.policy import act
from gopt.systems.regal.settings import Settings

Tree = Any


def betas(bins: int) -> np.ndarray:
    """Return the quantiles of the Betas that actions choose from, float32 `[bins², points]`.

    The row of a Beta is mean · bins + deviation, both as levels. Means are evenly spaced in (0, 1).
    Deviations are shares of the largest that the mean allows. They grow geometrically from 0.02 to
    1/√3, the share of the uniform distribution, so a mean of 1/2 with the last deviation is close
    to uniform.
    """
    mean = (np.arange(bins) + 0.5) / bins
    share = np.geomspace(0.02, 1 / np.sqrt(3), bins)
    return beta_quantiles(mean[:, None], share * np.sqrt(mean * (1 - mean))[:, None]).reshape(
        bins * bins, -1
    )


def proposal(problem: Problem, action: Action, settings: Settings) -> brkga.Proposal:
    """Return the proposal of one action.

    All transfers of a tensor take the Beta of its first reader's priority, shifted as the action
    says. So the tensor is sent when its first reader is next in the order. The last candidates stay
    uniform (see `Settings.trust`).
    """
    bins = settings.bins
    sent = action.genes[_first_reader(problem), -1] + action.transfer[problem.producer]
    genes = Keys(
        device=action.genes[:, :-1],
        priority=action.genes[:, -1],
        transfer=jnp.clip(sent, 0, bins - 1)[:, None],
    )
    rows = jax.tree.map(lambda levels: levels[..., 0] * bins + levels[..., 1], genes)
    table = jnp.asarray(betas(bins))

    def propose(u: Keys) -> Keys:
        count = round(settings.trust * len(u.priority))
        return jax.tree.map(
            lambda row, u: jnp.concatenate([from_quantiles(table, row, u[:count]), u[count:]]),
            rows,
            u,
        )

    return propose


def elite_bias(problem: Problem, action: Action, settings: Settings) -> Keys:
    """Return the chance that each gene comes from the elite parent: levels evenly over 1/2..1.

    Genes of an op share its chance. Genes of a transfer share the chance of the tensor's first
    reader, at whose priority it is sent.
    """
    chance = 0.5 + 0.5 * (action.elite_bias.astype(jnp.float32) + 0.5) / settings.bins
    return Keys(chance[:, None], chance, chance[_first_reader(problem)][:, None])


def _first_reader(problem: Problem) -> jax.Array:
    """Return the first op that reads each tensor, or the padding row if none does, int32 `[T]`."""
    first = jax.ops.segment_min(problem.consumer, problem.tensor, problem.shape.tensors)
    return jnp.minimum(first, problem.shape.ops - 1)


def search(
    key: PRNGKeyArray,
    problem: Problem,
    params: Tree,
    *,
    inputs: Inputs,
    objective: str,
    evaluations: int,
    settings: Settings,
) -> SearchResult:
    """Return the best keys that BRKGA finds from the proposals of a policy, without exploration.

    Args:
      key: random key.
      problem: one problem.
      params: parameters of the policy.
      inputs: the same problem as the policy reads it.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of candidates to evaluate.
      settings: settings of the policy.
    """
    found = search_from(
        key,
        problem,
        act(None, params, inputs, settings=settings),
        objective=objective,
        evaluations=evaluations,
        settings=settings,
    )
    return SearchResult(found.best, found.cost, found.history, found.evaluations)


def search_from(
    key: PRNGKeyArray,
    problem: Problem,
    action: Action,
    *,
    objective: str,
    evaluations: int,
    settings: Settings,
    population: brkga.Settings | None = None,
    initial: Keys | None = None,
    run: Run = whole,
) -> LoopResult:
    """Return the result of BRKGA on one problem from the proposals of one action.

    Args:
      key: random key.
      problem: one problem.
      action: action of a policy, see `gopt.systems.regal.act`.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of candidates to evaluate.
      settings: settings of the policy.
      population: sizes of a generation.
      initial: candidates `[K, ...]` to start from.
      run: how loops run, see `gopt.search.loop`.

    Raises:
      ValueError: the action is for another number of ops or devices.
    """
    n = problem.shape.ops
    shapes = Action((n, problem.num_devices + 1, 2), (n,), (n, 2))
    for field, leaf, expected in zip(Action._fields, action, shapes, strict=True):
        if leaf.shape != expected:
            raise ValueError(f"action.{field} has shape {leaf.shape}: expected {expected}")
    return evolve(
        key,
        problem,
        action,
        objective=objective,
        evaluations=evaluations,
        settings=population,
        initial=initial,
        make=_loop,
        run=run,
        policy=settings,
    )


def _loop(
    key: PRNGKeyArray,
    problem: Problem,
    initial: Keys | None,
    action: Action,
    *,
    policy: Settings,
    **options: Any,
) -> Loop:
    """Return BRKGA from the proposals of an action as a loop, see `evolve`."""
    return loop(
        key,
        problem,
        initial,
        proposal=proposal(problem, action, policy),
        bias=elite_bias(problem, action, policy),
        **options,
    )


def rewards(
    keys: PRNGKeyArray,
    problem: Problem,
    standard: jax.Array,
    actions: Action,
    *,
    objective: str,
    evaluations: int,
    settings: Settings,
    population: brkga.Settings | None = None,
) -> Float32[jax.Array, " A"]:
    """Return -cost / standard cost of actions, float32 `[A]`.

    Every argument has a leading axis `A` with independent rows, so the function can be spread over
    devices by `gopt.search.parallel.shard_candidates`. Searches run one after another; each
    evaluates one population at once.

    Args:
      keys: random keys of the searches.
      problem: problems.
      standard: costs that standard BRKGA reaches on them.
      actions: actions, see `gopt.systems.regal.quantise`.
      objective: as in `search_from`.
      evaluations: number of candidates that each search evaluates.
      settings: settings of the policy.
      population: sizes of a generation.
    """

    def one(row: tuple[jax.Array, Problem, Action]) -> jax.Array:
        return search_from(
            *row,
            objective=objective,
            evaluations=evaluations,
            settings=settings,
            population=population,
        ).cost

    return -jax.lax.map(one, (keys, problem, actions)) / standard
