"""Iterations of GO: draw decisions around the best one so far, and cost them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PRNGKeyArray

from gopt.systems.go.actions import apply_action
from gopt.systems.go.decisions import OpDecisions, Simulator, State
from gopt.systems.go.features import Groups
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import Embedding, act, embed
from gopt.systems.go.settings import Settings

Tree = Any


class Trajectory(NamedTuple):
    """The moves of an iteration, and the change of cost. `M` kinds of moves, `S` samples.

    Attributes:
      decision: decision before, `[N]`.
      groups: features of groups, for each kind of moves.
      action: tuple of int32 `[S, K]`, one for each kind of moves.
      log_prob: float32 `[M, S]`.
      ratio: float32 `[M, S]`, cost ÷ cost of the decision before.
    """

    decision: OpDecisions
    groups: tuple[Groups, ...]
    action: Any
    log_prob: Any
    ratio: Any


def iterate(
    key: PRNGKeyArray,
    params: Tree,
    embedding: Embedding,
    inputs: Inputs,
    state: State,
    simulator: Simulator,
    *,
    settings: Settings,
) -> tuple[State, Trajectory]:
    """Return the best decision after an iteration, and its trajectory.

    `M · S` decisions are costed: `Settings.samples` of each kind of moves. Each one changes groups
    of one level for one task. The best decision before is simulated, too.

    Args:
      key: random key.
      params: parameters of the policy.
      embedding: embedding of the graph, see `embed`.
      inputs: the graph.
      state: best decision before.
      simulator: simulator, see `simulator_of`.
      settings: settings of the policy.
    """
    found = act(
        key,
        params,
        inputs,
        settings=settings,
        decision=state.decision,
        timing=simulator.timing(state.decision),
        embedding=embedding,
    )
    decisions = [
        apply_action(inputs, state.decision, action, name=settings.tasks[task], level=level)
        for (task, level), action in zip(settings.moves, found.action, strict=True)
    ]
    drawn = jax.tree.map(lambda *x: jnp.concatenate(x), *decisions)
    costs = simulator.cost(drawn)
    after = keep_best(state, drawn, costs)
    ratio = jnp.where(costs == state.cost, 1, costs / jnp.maximum(state.cost, 1e-30))
    ratio = ratio.reshape(len(decisions), -1)
    return after, Trajectory(state.decision, *found, ratio)


def keep_best(state: State, drawn: OpDecisions, costs: jax.Array) -> State:
    """Return the best of decisions `[S, N]` with costs `[S]`, unless it is worse than the state."""
    best = jnp.nanargmin(costs)
    better = costs[best] <= state.cost
    found = State(jax.tree.map(lambda x: x[best], drawn), costs[best])
    return jax.tree.map(lambda new, old: jnp.where(better, new, old), found, state)


def rollout(
    key: jax.Array,
    params: Tree,
    inputs: Inputs,
    start: State,
    simulator: Simulator,
    *,
    iterations: int,
    settings: Settings,
) -> tuple[State, Trajectory, jax.Array]:
    """Return the best decision after `T` iterations, the trajectory, and costs after each.

    The arguments are as in `iterate`; `start` is the decision to begin with, see `begin`. The
    trajectory has an axis `[T]` before its others, and costs are float32 `[T]`.
    """
    embedding = embed(params, inputs, settings=settings)

    def step(state: State, key: jax.Array) -> tuple[State, Any]:
        after, taken = iterate(key, params, embedding, inputs, state, simulator, settings=settings)
        return after, (taken, after.cost)

    state, (taken, history) = lax.scan(step, start, jax.random.split(key, iterations))
    return state, taken, history
