"""Searches guided by a trained network, see `gopt.search.guided`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32, PRNGKeyArray

from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem
from gopt.learning.graphs import GraphsTuple
from gopt.search import guided
from gopt.search.guided import Guide, Move
from gopt.search.result import SearchResult
from gopt.systems.local_advantage.inputs import configurable_ops
from gopt.systems.local_advantage.network import predictor
from gopt.systems.local_advantage.settings import Settings

Tree = Any


def act(
    key: jax.Array | None,
    params: Tree,
    inputs: GraphsTuple,
    *,
    settings: Settings,
    decisions: jax.Array | None = None,
) -> Int32[jax.Array, ""]:
    """Return the op whose decision is changed next, int32 `[]`.

    The network ranks changes and draws none. Its action is the change of the highest rank.

    Args:
      key: not used, as nothing is drawn.
      params: parameters of the network.
      inputs: a fusion problem as the network reads it.
      settings: settings of the network.
      decisions: int32 `[N]`, 1 for fused ops; by default none is fused.
    """
    del key
    if decisions is None:
        decisions = jnp.zeros(len(inputs.nodes["kind"]), jnp.int32)
    scores = guide(params, inputs, configurable_ops(inputs), settings=settings)(decisions)
    return jnp.argmax(scores).astype(jnp.int32)


def search(
    key: PRNGKeyArray,
    problem: FusionProblem,
    params: Tree,
    *,
    inputs: GraphsTuple,
    objective: str,
    evaluations: int,
    settings: Settings,
    start: jax.Array | None = None,
) -> SearchResult:
    """Return the best decisions of a search that the network guides, int32 `[N]`.

    Args:
      key: random key.
      problem: one fusion problem.
      params: parameters of the network.
      inputs: the same problem as the network reads it.
      objective: "makespan", the sum of the times of kernels, which run sequentially.
      evaluations: number of configurations to cost.
      settings: settings of the network.
      start: int32 `[N]`, decisions to begin with; by default nothing is fused.

    Raises:
      ValueError: the objective is not "makespan".
    """
    if objective != "makespan":
        raise ValueError(f"objective is {objective!r}: expected 'makespan'")
    problem = jax.tree.map(jnp.asarray, problem)
    configurable = problem.configurable
    if start is None:
        start = jnp.zeros(len(configurable), jnp.int32)
    found = guided.minimize(
        key,
        lambda decisions: jax.vmap(fusion_cost, (None, 0))(problem, decisions > 0),
        start,
        guide(params, inputs, configurable, settings=settings),
        evaluations=evaluations,
        moves=(guided.flip, *shifts(inputs, configurable)),
    )
    evaluated = jnp.arange(1, len(found.history) + 1, dtype=jnp.int32)
    return SearchResult(found.decisions, found.cost, found.history, evaluated)


def guide(
    params: Tree, graphs: GraphsTuple, configurable: Bool[jax.Array, " N"], *, settings: Settings
) -> Guide:
    """Return a guide that scores a change of each of the int32 decisions `[N]`.

    The score of a network of signed advantages is the predicted saving of the other value. The
    score of a network of absolute advantages, as in the paper, is only the size of the change.

    Args:
      params: parameters of the network.
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision.
      settings: settings of the network.

    Raises:
      ValueError: decisions do not have two values.
    """
    target_of = predictor(params, graphs, settings=settings)

    def scores(decisions: jax.Array) -> jax.Array:
        found = target_of(decisions)
        promise = jnp.where(decisions > 0, found, -found) if settings.is_signed else found
        return jnp.where(configurable, promise, -jnp.inf)

    return scores


def uniform(configurable: jax.Array) -> Guide:
    """Return a guide that scores all decisions equally."""
    return lambda decisions: jnp.where(configurable, 0.0, -jnp.inf)


def shifts(graphs: GraphsTuple, configurable: Bool[jax.Array, " N"]) -> tuple[Move, Move]:
    """Return two moves: the end of a kernel moves by one op.

    The decision of an op changes, and its neighbours get its old value: all ops that it reads, or
    all that read it. Single decisions rarely lead there, because between the two changes more is
    computed or written than before and after.

    Args:
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision.
    """
    configurable, count = jnp.asarray(configurable), len(configurable)

    def shift(
        ends: jax.Array, others: jax.Array, key: jax.Array, decisions: jax.Array, node: jax.Array
    ) -> jax.Array:
        del key
        is_near = jnp.zeros(count, bool).at[others].max(ends == node) & configurable
        own = decisions[node]
        return jnp.where(is_near, own, decisions).at[node].set(1 - own)

    senders, receivers = jnp.asarray(graphs.senders), jnp.asarray(graphs.receivers)
    return partial(shift, receivers, senders), partial(shift, senders, receivers)


def walk(graphs: GraphsTuple, configurable: Bool[jax.Array, " N"], *, steps: int) -> Move:
    """Return a move: flip a decision, and at even chances each decision on a random walk from it.

    Args:
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision.
      steps: number of uses that the walk follows, to consumers and producers alike.
    """
    configurable, count = jnp.asarray(configurable), len(configurable)
    senders, receivers = jnp.asarray(graphs.senders), jnp.asarray(graphs.receivers)
    ends = jnp.concatenate([senders, receivers])
    others = jnp.concatenate([receivers, senders])
    order = jnp.argsort(ends, stable=True)
    others, first = (
        others[order],
        jnp.searchsorted(ends[order], jnp.arange(count + 1, dtype=ends.dtype)),
    )

    def change(key: jax.Array, decisions: jax.Array, node: jax.Array) -> jax.Array:
        changed = decisions.at[node].set(1 - decisions[node])
        for k in range(steps):
            to_place, to_coin = jax.random.split(jax.random.fold_in(key, k))
            place = jax.random.randint(to_place, (), first[node], first[node + 1], jnp.int32)
            node = jnp.where(first[node] < first[node + 1], others[place], node)
            flips = jax.random.bernoulli(to_coin, jnp.float32(0.5)) & configurable[node]
            changed = changed.at[node].set(jnp.where(flips, 1 - decisions[node], changed[node]))
        return changed

    return change
