"""Search from one configuration of decisions to a neighbour, where a guide expects most of it.

A step takes one of the decisions that the guide scores highest, changes it and what is near, and
keeps what is better. A decision that was taken rests for a while. With `share=1` any decision that
does not rest is as likely, and with `rest=0`, too, this is the random search that guides are
compared with.

Source: the search of learned local advantage functions. What is near, how often the guide is asked,
and that decisions rest, are our choices; the last is the memory of tabu search, Glover, ORSA
Journal on Computing 1 (1989).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.search.decisions import Cost, Result

Guide = Callable[[jax.Array], jax.Array]  # decisions [N] to scores [N], -inf where nothing may be
Change = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # key, decisions, node


@dataclass(frozen=True)
class Settings:
    """How the guide is used.

    Attributes:
      share: of the decisions, those with the highest scores among which one is drawn.
      explore: how often one is drawn among all instead.
      rest: steps for which a decision that was taken is not taken again, as a share of how many
        decisions there are.
      refresh: steps until the guide is asked again.
    """

    share: float = 0.01
    explore: float = 0.0
    rest: float = 0.9
    refresh: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}: expected 0 < share <= 1")
        if not 0 <= self.explore <= 1:
            raise ValueError(f"explore is {self.explore}: expected 0 <= explore <= 1")
        if not 0 <= self.rest < 1:
            raise ValueError(f"rest is {self.rest}: expected 0 <= rest < 1")
        if self.refresh < 1:
            raise ValueError(f"refresh is {self.refresh}: expected 1 at least")


class State(NamedTuple):
    """Where a search is, which is the best that it has met."""

    decisions: jax.Array  # [N]
    cost: jax.Array  # []
    step: jax.Array  # int32 []
    awake: jax.Array  # int32 [N], the step from which each decision may be taken


def flip(key: jax.Array, decisions: jax.Array, node: jax.Array) -> jax.Array:
    """Returns decisions of two values with that of one node the other way."""
    del key
    return decisions.at[node].set(1 - decisions[node])


def init(decisions: jax.Array, cost: jax.Array) -> State:
    """Returns a search that starts at decisions `[N]` of a cost."""
    return State(decisions, cost, jnp.int32(0), jnp.zeros(len(decisions), jnp.int32))


def ask(
    key: jax.Array,
    state: State,
    scores: jax.Array,
    order: jax.Array,
    *,
    settings: Settings,
) -> jax.Array:
    """Returns the decision to be taken next, int32 `[]`; N, which is none, where none may be taken.

    Args:
      key: random key.
      state: where the search is.
      scores: of each decision, -inf where nothing may be changed, `[N]`.
      order: decisions by falling score, int32 `[N]`.
      settings: how the guide is used.
    """
    to_explore, to_draw = jax.random.split(key)
    is_free = (scores > -jnp.inf) & (state.awake <= state.step)
    free = jnp.cumsum(is_free[order])
    few = jnp.maximum((settings.share * jnp.sum(scores > -jnp.inf)).astype(jnp.int32), 1)
    explores = jax.random.bernoulli(to_explore, settings.explore)
    few = jnp.where(explores, free[-1], jnp.minimum(few, free[-1]))
    place = jnp.searchsorted(free, jax.random.randint(to_draw, (), 0, few), side="right")
    return order.at[place].get(mode="fill", fill_value=len(order))


def tell(
    state: State, node: jax.Array, decisions: jax.Array, cost: jax.Array, *, rest: jax.Array
) -> State:
    """Returns the search after a candidate, which is kept if it is no worse.

    Args:
      state: where the search is.
      node: the decision that was taken, int32 `[]`.
      decisions: the candidate, `[N]`.
      cost: of it, `[]`.
      rest: steps for which the decision is not taken again, int32 `[]`.
    """
    moves = cost <= state.cost
    return State(
        jnp.where(moves, decisions, state.decisions),
        jnp.where(moves, cost, state.cost),
        state.step + 1,
        state.awake.at[node].set(state.step + 1 + rest),
    )


def minimize(
    key: jax.Array,
    cost: Cost,
    start: jax.Array,
    guide: Guide,
    *,
    evaluations: int,
    settings: Settings | None = None,
    change: Change = flip,
) -> Result:
    """Returns the best of a whole run from given decisions; jit it, and vmap it over keys.

    Exactly `evaluations` candidates are evaluated, the start among them.

    Args:
      key: random key.
      cost: maps decisions `[P, N]` to costs `[P]`.
      start: decisions, `[N]`.
      guide: maps decisions `[N]` to scores `[N]`.
      evaluations: how many candidates to evaluate.
      settings: how the guide is used.
      change: what becomes of decisions when a node is chosen.

    Raises:
      ValueError: `evaluations` is less than one.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    settings = settings or Settings()
    state = init(start, cost(start[None])[0])
    first = state.cost

    def block(state: State, keys: jax.Array) -> tuple[State, jax.Array]:
        scores = guide(state.decisions)
        order = jnp.argsort(-scores, stable=True).astype(jnp.int32)
        rest = (settings.rest * jnp.sum(scores > -jnp.inf)).astype(jnp.int32)

        def step(state: State, key: jax.Array) -> tuple[State, jax.Array]:
            to_ask, to_change = jax.random.split(key)
            node = ask(to_ask, state, scores, order, settings=settings)
            candidate = change(to_change, state.decisions, node)
            state = tell(state, node, candidate, cost(candidate[None])[0], rest=rest)
            return state, state.cost

        return lax.scan(step, state, keys)

    keys = jax.random.split(key, evaluations - 1)
    blocks, rest = divmod(evaluations - 1, settings.refresh)
    whole = keys[: blocks * settings.refresh]
    history = [first[None]]
    if blocks:
        state, found = lax.scan(block, state, whole.reshape(blocks, settings.refresh))
        history.append(found.ravel())
    if rest:
        state, found = block(state, keys[-rest:])
        history.append(found)
    return Result(state.decisions, state.cost, jnp.concatenate(history))
