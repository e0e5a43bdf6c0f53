"""Gibbs sampling of discrete decisions, one after another, from the costs of their values.

Source: learned local advantage functions sample their training data in this way, `p(y_v = k | rest)
∝ exp(-cost / τ)`; Geman and Geman, IEEE PAMI 6 (1984).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int32, PRNGKeyArray

from gopt.search.population import DecisionCost, DecisionResult, is_concrete


class State(NamedTuple):
    """Current and best decisions of a chain.

    Attributes:
      decisions: current decisions, int32 `[N]`.
      cost: their cost, `[]`.
      best: best decisions evaluated so far, int32 `[N]`.
      best_cost: their cost, `[]`.
    """

    decisions: jax.Array
    cost: jax.Array
    best: jax.Array
    best_cost: jax.Array


def init(decisions: Int32[jax.Array, " N"], cost: DecisionCost) -> State:
    """Start a chain at the given decisions; this is one evaluation.

    Args:
      decisions: first decisions, int32 `[N]`.
      cost: function from decisions `[P, N]` to costs `[P]`.
    """
    decisions = jnp.asarray(decisions, jnp.int32)
    found = cost(decisions[None])[0]
    return State(decisions, found, decisions, found)


def visit(
    key: jax.Array,
    state: State,
    node: jax.Array,
    cost: DecisionCost,
    *,
    temperature: jax.Array | float,
    values: int = 2,
) -> State:
    """Resample the decision of one node, int32 `[]`; this takes `values - 1` evaluations.

    The other arguments and the errors are as in `minimize`.
    """
    _check(temperature, values)
    own = state.decisions[node]
    others = (own + jnp.arange(1, values, dtype=jnp.int32)) % values
    candidates = jnp.repeat(state.decisions[None], values - 1, 0).at[:, node].set(others)
    costs = jnp.append(cost(candidates), state.cost)
    best = jnp.argmin(costs)
    # Subtract costs first: a float32 has fewer bits than an int32 cost. Subtract the least one, so
    # that an overflow at a low temperature gives -inf, which is never drawn.
    worse = costs - costs[best]
    if jnp.issubdtype(worse.dtype, jnp.integer):
        worse = worse.astype(jnp.float32)
    drawn = jax.random.categorical(key, -worse / temperature)
    everything = jnp.concatenate([candidates, state.decisions[None]])
    is_new = costs[best] < state.best_cost
    return State(
        everything[drawn],
        costs[drawn],
        jnp.where(is_new, everything[best], state.best),
        jnp.where(is_new, costs[best], state.best_cost),
    )


def sweep(
    key: jax.Array,
    state: State,
    nodes: jax.Array,
    num_nodes: jax.Array | int,
    cost: DecisionCost,
    *,
    temperature: jax.Array | float,
    values: int = 2,
) -> State:
    """Visit each node once, in order; `jax.vmap` runs many chains.

    The nodes are indices of decisions, int32 `[M]`, with padding; `num_nodes` is their number
    without it. The other arguments and the errors are as in `minimize`.
    """
    nodes = jnp.asarray(nodes)

    def step(k: jax.Array, state: State) -> State:
        return visit(
            jax.random.fold_in(key, k),
            state,
            nodes[k],
            cost,
            temperature=temperature,
            values=values,
        )

    return lax.fori_loop(0, num_nodes, step, state)


def minimize(
    key: PRNGKeyArray,
    cost: DecisionCost,
    start: Int32[jax.Array, " N"],
    nodes: Int32[jax.Array, " M"],
    num_nodes: jax.Array | int,
    *,
    evaluations: int,
    temperature: jax.Array | float,
    values: int = 2,
) -> DecisionResult:
    """Run one chain and return its best decisions; jit it, and vmap it over keys.

    Args:
      key: random key.
      cost: function from decisions `[P, N]` to costs `[P]`.
      start: first decisions, int32 `[N]`.
      nodes: indices of the decisions to visit cyclically, int32 `[M]`, with padding.
      num_nodes: number of nodes without padding.
      evaluations: number of candidates to evaluate, the start included; up to `values - 2` are left
        unused.
      temperature: τ > 0, in units of the cost.
      values: number of values of a decision, `K`.

    Returns:
      The best decisions, their cost and the history.

    Raises:
      ValueError: `evaluations` is less than one, `values` is less than two, or a concrete
        `num_nodes` or `temperature` is out of range.
    """
    if not evaluations >= 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    if is_concrete(num_nodes) and not 1 <= num_nodes <= len(nodes):
        raise ValueError(f"num_nodes is {num_nodes}: expected 1..{len(nodes)}")
    _check(temperature, values)
    nodes, state = jnp.asarray(nodes), init(start, cost)

    def step(state: State, k: jax.Array) -> tuple[State, jax.Array]:
        node = nodes[k % num_nodes]
        state = visit(
            jax.random.fold_in(key, k), state, node, cost, temperature=temperature, values=values
        )
        return state, state.best_cost

    first = state.best_cost
    visits, rest = divmod(evaluations - 1, values - 1)
    state, found = lax.scan(step, state, jnp.arange(visits, dtype=jnp.int32))
    history = jnp.concatenate([first[None], jnp.repeat(found, values - 1)])
    return DecisionResult(state.best, state.best_cost, jnp.pad(history, (0, rest), mode="edge"))


def _check(temperature: jax.Array | float, values: int) -> None:
    if not values >= 2:
        raise ValueError(f"values is {values}: expected 2 at least")
    if is_concrete(temperature) and not np.all(np.asarray(temperature) > 0):
        raise ValueError(f"temperature is {temperature}: expected more than 0")
