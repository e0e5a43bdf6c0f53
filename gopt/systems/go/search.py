"""Iterations of GO: decisions are drawn around the best one so far, and costed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.systems.go.actions import act, log_prob, sample
from gopt.systems.go.decisions import Decision, Simulator, State
from gopt.systems.go.features import Groups, observe
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import Embedding, embed, moves
from gopt.systems.go.settings import Settings

Tree = Any


class Taken(NamedTuple):
    """What was drawn in an iteration, and what came of it. `M` kinds of moves, `S` samples."""

    decision: Decision  # [N], before
    groups: tuple[Groups, ...]  # what there was to know, for each kind of moves
    action: Any  # a tuple of int32 [S, K], one for each kind of moves
    log_prob: Any  # float32 [M, S]
    ratio: Any  # float32 [M, S], cost in shares of the cost before


def iterate(
    key: jax.Array,
    params: Tree,
    embedding: Embedding,
    inputs: Inputs,
    state: State,
    simulator: Simulator,
    *,
    settings: Settings,
) -> tuple[State, Taken]:
    """Returns the best decision after an iteration, and what was taken in it.

    `M · S` decisions are costed: `Settings.samples` of each kind of moves, each of them a change of
    the groups of one level by one task only. The best one before is simulated, too.

    Args:
      key: random key.
      params: of the policy.
      embedding: of the graph, as of `embed`.
      inputs: the graph.
      state: the best decision before.
      simulator: as of `simulator_of`.
      settings: of the policy.
    """
    timing = simulator.timing(state.decision)
    groups = observe(inputs, state.decision, timing, settings=settings)
    said = moves(params, embedding, groups, settings=settings)
    actions, log_probs, decisions = [], [], []
    rows = zip(settings.moves, said, jax.random.split(key, len(said)), strict=True)
    for (task, level), (logits, _), to_sample in rows:
        action = sample(to_sample, logits, settings.samples)
        actions.append(action)
        log_probs.append(log_prob(logits, action))
        name = settings.tasks[task]
        decisions.append(act(inputs, state.decision, action, name=name, level=level))
    drawn = jax.tree.map(lambda *x: jnp.concatenate(x), *decisions)
    costs = simulator.cost(drawn)
    after = keep_best(state, drawn, costs)
    ratio = jnp.where(costs == state.cost, 1, costs / jnp.maximum(state.cost, 1e-30))
    ratio = ratio.reshape(len(actions), -1)
    return after, Taken(state.decision, groups, tuple(actions), jnp.stack(log_probs), ratio)


def keep_best(state: State, drawn: Decision, costs: jax.Array) -> State:
    """Returns the best of decisions `[S, N]` of costs `[S]` if it is no worse than the state's."""
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
) -> tuple[State, Taken, jax.Array]:
    """Returns the best decision after `T` iterations, what was taken, and costs after each.

    The arguments are those of `iterate`; `start` is the decision to begin with, as of `begin`. What
    was taken has an axis `[T]` before its others, and costs are float32 `[T]`.
    """
    embedding = embed(params, inputs, settings=settings)

    def step(state: State, key: jax.Array) -> tuple[State, Any]:
        after, taken = iterate(key, params, embedding, inputs, state, simulator, settings=settings)
        return after, (taken, after.cost)

    state, (taken, history) = lax.scan(step, start, jax.random.split(key, iterations))
    return state, taken, history
