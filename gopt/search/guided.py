"""Local search over discrete decisions, guided by scores of the decisions.

A step draws one of the decisions that the guide scores highest, and applies a move to it and its
neighbourhood. The candidate is kept if its cost is not higher. A drawn decision then rests for a
while. If the search has not improved for a while, it draws among all moves, not only the first.
With `share=1` all decisions that do not rest are equally likely. With `rest=0` as well, this is the
random search that guides are compared with.

Source: the search of learned local advantage functions. The neighbourhood, the refresh interval of
the guide, the resting and the several moves are our choices. Resting is the memory of tabu search,
Glover, ORSA Journal on Computing 1 (1989). Changing the neighbourhood of a stuck search is variable
neighbourhood search, Mladenović and Hansen, Computers & OR 24 (1997).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32, PRNGKeyArray, Shaped

from gopt.search.population import DecisionCost, DecisionResult

Guide = Callable[[jax.Array], jax.Array]  # decisions [N] to scores [N]; -inf forbids a change
Move = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # key, decisions, node to decisions


@dataclass(frozen=True)
class Settings:
    """Settings of the guided search.

    Attributes:
      share: share of the decisions, by highest score, among which one is drawn.
      rest: draws of a move before it may take the same decision again, as a share of the number of
        changeable decisions.
      patience: steps without improvement before all moves are tried, as a share of the number of
        changeable decisions.
      refresh: steps between two calls of the guide.
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
    """State of a search with M moves; its current decisions are the best so far.

    Attributes:
      decisions: current decisions, `[N]`.
      cost: their cost, `[]`.
      waited: steps since the cost last fell, int32 `[]`.
      taken: number of draws of each move, int32 `[M]`.
      awake: value of `taken` from which a move may take each decision again, int32 `[M, N]`.
    """

    decisions: jax.Array
    cost: jax.Array
    waited: jax.Array
    taken: jax.Array
    awake: jax.Array


class Ranking(NamedTuple):
    """Ranking of the decisions by the guide, valid until its next call.

    Attributes:
      order: decisions by falling score, int32 `[N]`.
      choices: number of decisions that may be changed, int32 `[]`.
    """

    order: jax.Array
    choices: jax.Array


class DrawnMove(NamedTuple):
    """A drawn decision and the move that changes it.

    Attributes:
      move: index of the move, int32 `[]`.
      node: index of the decision, int32 `[]`; N if no decision may be changed.
    """

    move: jax.Array
    node: jax.Array


def flip(
    key: PRNGKeyArray, decisions: Shaped[jax.Array, " N"], node: Int32[jax.Array, ""]
) -> jax.Array:
    """Flip the binary decision of one node; `key` is not used.

    Args:
      key: random key.
      decisions: decisions of 0 or 1, `[N]`.
      node: index of the decision, int32 `[]`.
    """
    del key
    return decisions.at[node].set(1 - decisions[node])


def init(
    decisions: Shaped[jax.Array, " N"], cost: Shaped[jax.Array, ""], *, moves: int = 1
) -> State:
    """Start a search at the given decisions.

    Args:
      decisions: first decisions, `[N]`.
      cost: their cost, `[]`.
      moves: number of moves, `M`.
    """
    never = jnp.zeros((moves, len(decisions)), jnp.int32)
    return State(decisions, cost, jnp.int32(0), never[:, 0], never)


def rank(scores: jax.Array) -> Ranking:
    """Rank decisions by their scores `[N]`; -inf marks decisions that may not be changed."""
    order = jnp.argsort(-scores, stable=True).astype(jnp.int32)
    return Ranking(order, jnp.sum(scores > -jnp.inf, dtype=jnp.int32))


def ask(key: PRNGKeyArray, state: State, rank: Ranking, *, settings: Settings) -> DrawnMove:
    """Draw the next decision and move.

    Args:
      key: random key.
      state: current state of the search.
      rank: ranking by the guide.
      settings: settings of the guided search.
    """
    order, choices = rank
    to_move, to_node = jax.random.split(key)
    is_stuck = state.waited >= settings.patience * choices
    move = jax.random.randint(to_move, (), 0, jnp.where(is_stuck, len(state.taken), 1))
    is_free = (jnp.arange(len(order)) < choices) & (state.awake[move, order] <= state.taken[move])
    free = jnp.cumsum(is_free)
    few = jnp.maximum((settings.share * choices).astype(jnp.int32), 1)
    few = jnp.minimum(few, free[-1])
    place = jnp.searchsorted(free, jax.random.randint(to_node, (), 0, few), side="right")
    return DrawnMove(move, order.at[place].get(mode="fill", fill_value=len(order)))


def change(
    key: PRNGKeyArray, decisions: Shaped[jax.Array, " N"], taken: DrawnMove, moves: Sequence[Move]
) -> jax.Array:
    """Return the candidate that a move makes of decisions `[N]`.

    Args:
      key: random key.
      decisions: current decisions, `[N]`.
      taken: drawn decision and move.
      moves: all moves.
    """
    return lax.switch(taken.move, moves, key, decisions, taken.node)


def tell(
    state: State,
    taken: DrawnMove,
    decisions: Shaped[jax.Array, " N"],
    cost: Shaped[jax.Array, ""],
    choices: Int32[jax.Array, ""],
    *,
    settings: Settings,
) -> State:
    """Return the state after a candidate, which is kept if its cost is not higher.

    Args:
      state: current state of the search.
      taken: drawn decision and move.
      decisions: candidate, `[N]`.
      cost: its cost, `[]`.
      choices: number of decisions that may be changed, int32 `[]`.
      settings: settings of the guided search.
    """
    times, keep = state.taken.at[taken.move].add(1), cost <= state.cost
    # At least one decision is awake.
    rest = jnp.minimum((settings.rest * choices).astype(jnp.int32), choices - 1)
    return State(
        jnp.where(keep, decisions, state.decisions),
        jnp.where(keep, cost, state.cost),
        jnp.where(cost < state.cost, 0, state.waited + 1),
        times,
        state.awake.at[*taken].set(times[taken.move] + rest),
    )


def check_budget(evaluations: int, moves: Sequence[Move]) -> None:
    """Check that a search has evaluations and moves.

    Raises:
      ValueError: `evaluations` is less than one, or `moves` is empty.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    if not moves:
        raise ValueError("moves is empty: expected one at least")


def minimize(
    key: PRNGKeyArray,
    cost: DecisionCost,
    start: Shaped[jax.Array, " N"],
    guide: Guide,
    *,
    evaluations: int,
    settings: Settings | None = None,
    moves: Sequence[Move] = (flip,),
) -> DecisionResult:
    """Run the guided search from given decisions; jit it, and vmap it over keys.

    Exactly `evaluations` candidates are evaluated, the start included.

    Args:
      key: random key.
      cost: function from decisions `[P, N]` to costs `[P]`.
      start: first decisions, `[N]`.
      guide: function from decisions `[N]` to scores `[N]`.
      evaluations: number of candidates to evaluate.
      settings: settings of the guided search.
      moves: functions that change a candidate at a node; the first is the default move.

    Returns:
      The best decisions, their cost and the history.

    Raises:
      ValueError: `evaluations` is less than one, or `moves` is empty.
    """
    check_budget(evaluations, moves)
    settings = settings or Settings()
    state = init(start, cost(start[None])[0], moves=len(moves))
    first = state.cost

    def block(state: State, keys: jax.Array) -> tuple[State, jax.Array]:
        said = rank(guide(state.decisions))

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
