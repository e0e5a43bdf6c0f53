"""Search from one configuration of decisions to a neighbour, where a guide expects most of it.

A step takes one of the decisions that the guide scores highest, changes it and what is near, and
keeps what is no worse. A decision that was taken rests for a while. Where nothing was better for a
while, other moves are tried beside the first. With `share=1` any decision that does not rest is as
likely, and with `rest=0`, too, this is the random search that guides are compared with.

Source: the search of learned local advantage functions. What is near, how often the guide is asked,
that decisions rest and that there are several moves are our choices. Rest is the memory of tabu
search, Glover, ORSA Journal on Computing 1 (1989); to change the neighbourhood where a search is
stuck is variable neighbourhood search, Mladenović and Hansen, Computers & OR 24 (1997).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.search.population import DecisionCost, DecisionResult

Guide = Callable[[jax.Array], jax.Array]  # decisions [N] to scores [N], -inf where nothing may be
Move = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # key, decisions, node to decisions


@dataclass(frozen=True)
class Settings:
    """How the guide is used.

    Attributes:
      share: of the decisions, those with the highest scores among which one is drawn.
      rest: how often a move takes others before it takes a decision again, as a share of how many
        decisions there are.
      patience: steps without anything better until all moves are tried, not the first alone, as
        the same share.
      refresh: steps until the guide is asked again.
    """

    share: float = 0.01
    rest: float = 0.9
    patience: float = 0.03
    refresh: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}: expected 0 < share <= 1")
        if not 0 <= self.rest < 1:
            raise ValueError(f"rest is {self.rest}: expected 0 <= rest < 1")
        if not self.patience >= 0:
            raise ValueError(f"patience is {self.patience}: expected 0 at least")
        if self.refresh < 1:
            raise ValueError(f"refresh is {self.refresh}: expected 1 at least")


class State(NamedTuple):
    """Where a search with `M` moves is, which is the best that it has met."""

    decisions: jax.Array  # [N]
    cost: jax.Array  # []
    waited: jax.Array  # int32 [], steps since the cost was last lower than before
    taken: jax.Array  # int32 [M], how often each move was
    awake: jax.Array  # int32 [M, N], from when on, by `taken`, a move may take each decision


class Advice(NamedTuple):
    """What a guide says, until it is asked again."""

    order: jax.Array  # int32 [N], decisions by falling score
    choices: jax.Array  # int32 [], how many of them may be taken


class Taken(NamedTuple):
    """A decision, and the move that changes it."""

    move: jax.Array  # int32 [], its place in the list of moves
    node: jax.Array  # int32 []; N, which is none, where no decision may be taken


def flip(key: jax.Array, decisions: jax.Array, node: jax.Array) -> jax.Array:
    """Returns decisions of two values with that of one node the other way."""
    del key
    return decisions.at[node].set(1 - decisions[node])


def init(decisions: jax.Array, cost: jax.Array, *, moves: int = 1) -> State:
    """Returns a search that starts at decisions `[N]` of a cost, with several moves."""
    never = jnp.zeros((moves, len(decisions)), jnp.int32)
    return State(decisions, cost, jnp.int32(0), never[:, 0], never)


def advice(scores: jax.Array) -> Advice:
    """Returns what scores `[N]`, -inf where nothing may be changed, say."""
    order = jnp.argsort(-scores, stable=True).astype(jnp.int32)
    return Advice(order, jnp.sum(scores > -jnp.inf, dtype=jnp.int32))


def ask(key: jax.Array, state: State, advice: Advice, *, settings: Settings) -> Taken:
    """Returns what to change next.

    Args:
      key: random key.
      state: where the search is.
      advice: of the guide.
      settings: how the guide is used.
    """
    order, choices = advice
    to_move, to_node = jax.random.split(key)
    is_stuck = state.waited >= settings.patience * choices
    move = jax.random.randint(to_move, (), 0, jnp.where(is_stuck, len(state.taken), 1))
    is_free = (jnp.arange(len(order)) < choices) & (state.awake[move, order] <= state.taken[move])
    free = jnp.cumsum(is_free)
    few = jnp.maximum((settings.share * choices).astype(jnp.int32), 1)
    few = jnp.minimum(few, free[-1])
    place = jnp.searchsorted(free, jax.random.randint(to_node, (), 0, few), side="right")
    return Taken(move, order.at[place].get(mode="fill", fill_value=len(order)))


def change(key: jax.Array, decisions: jax.Array, taken: Taken, moves: Sequence[Move]) -> jax.Array:
    """Returns the candidate that a move makes of decisions `[N]`."""
    return lax.switch(taken.move, moves, key, decisions, taken.node)


def tell(
    state: State,
    taken: Taken,
    decisions: jax.Array,
    cost: jax.Array,
    choices: jax.Array,
    *,
    settings: Settings,
) -> State:
    """Returns the search after a candidate, which is kept if it is no worse.

    Args:
      state: where the search is.
      taken: what was changed.
      decisions: the candidate, `[N]`.
      cost: of it, `[]`.
      choices: how many decisions may be taken, int32 `[]`.
      settings: how the guide is used.
    """
    times, keep = state.taken.at[taken.move].add(1), cost <= state.cost
    rest = jnp.minimum((settings.rest * choices).astype(jnp.int32), choices - 1)  # one is awake
    return State(
        jnp.where(keep, decisions, state.decisions),
        jnp.where(keep, cost, state.cost),
        jnp.where(cost < state.cost, 0, state.waited + 1),
        times,
        state.awake.at[*taken].set(times[taken.move] + rest),
    )


def minimize(
    key: jax.Array,
    cost: DecisionCost,
    start: jax.Array,
    guide: Guide,
    *,
    evaluations: int,
    settings: Settings | None = None,
    moves: Sequence[Move] = (flip,),
) -> DecisionResult:
    """Returns the best of a whole run from given decisions; jit it, and vmap it over keys.

    Exactly `evaluations` candidates are evaluated, the start among them.

    Args:
      key: random key.
      cost: maps decisions `[P, N]` to costs `[P]`.
      start: decisions, `[N]`.
      guide: maps decisions `[N]` to scores `[N]`.
      evaluations: how many candidates to evaluate.
      settings: how the guide is used.
      moves: what may become of decisions when a node is chosen; the first is the usual one.

    Raises:
      ValueError: `evaluations` is less than one, or there are no moves.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    if not moves:
        raise ValueError("moves is empty: expected one at least")
    settings = settings or Settings()
    state = init(start, cost(start[None])[0], moves=len(moves))
    first = state.cost

    def block(state: State, keys: jax.Array) -> tuple[State, jax.Array]:
        said = advice(guide(state.decisions))

        def step(state: State, key: jax.Array) -> tuple[State, jax.Array]:
            to_ask, to_change = jax.random.split(key)
            taken = ask(to_ask, state, said, settings=settings)
            candidate = change(to_change, state.decisions, taken, moves)
            found = cost(candidate[None])[0]
            state = tell(state, taken, candidate, found, said.choices, settings=settings)
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
    return DecisionResult(state.decisions, state.cost, jnp.concatenate(history))
