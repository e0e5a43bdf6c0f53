"""Local search over discrete decisions, guided by scores of the decisions.

A step draws one of the decisions that the guide scores highest, and applies a move to it and its
neighbourhood. The candidate is kept if its cost is not higher. A drawn decision then rests for a
while. If the search has not improved for a while, it draws among all moves, not only the first.
With `top_share=1` all decisions that do not rest are equally likely. With `rest_share=0` as well,
this is the random search that guides are compared with.

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
      top_share: share of the decisions, by highest score, among which one is drawn.
      rest_share: draws of a move before it may take the same decision again, as a share of the
        number of changeable decisions.
      patience_share: steps without improvement before all moves are tried, as a share of the number
        of changeable decisions.
      guide_interval: steps between two calls of the guide.
    """

    top_share: float = 0.01
    rest_share: float = 0.9
    patience_share: float = 0.03
    guide_interval: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.top_share <= 1:
            raise ValueError(f"top_share is {self.top_share}: expected 0 < top_share <= 1")
        if not 0 <= self.rest_share < 1:
            raise ValueError(f"rest_share is {self.rest_share}: expected 0 <= rest_share < 1")
        if not self.patience_share >= 0:
            raise ValueError(f"patience_share is {self.patience_share}: expected 0 at least")
        if not self.guide_interval >= 1:
            raise ValueError(f"guide_interval is {self.guide_interval}: expected 1 at least")


class State(NamedTuple):
    """State of a search with M moves; its current decisions are the best so far.

    Attributes:
      decisions: current decisions, `[N]`.
      cost: their cost, `[]`.
      steps_since_improvement: steps since the cost last fell, int32 `[]`.
      draws: number of draws of each move, int32 `[M]`.
      available_from: value of `draws` from which a move may take each decision again, int32 `[M,
      N]`.
    """

    decisions: jax.Array
    cost: jax.Array
    steps_since_improvement: jax.Array
    draws: jax.Array
    available_from: jax.Array


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
    patience = settings.patience_share * choices.astype(jnp.float32)
    is_stuck = state.steps_since_improvement.astype(jnp.float32) >= patience
    most = jnp.where(is_stuck, jnp.int32(len(state.draws)), jnp.int32(1))
    move = jax.random.randint(to_move, (), 0, most, jnp.int32)
    is_free = (jnp.arange(len(order), dtype=jnp.int32) < choices) & (
        state.available_from[move, order] <= state.draws[move]
    )
    free = jnp.cumsum(is_free, dtype=jnp.int32)
    few = jnp.maximum((settings.top_share * choices.astype(jnp.float32)).astype(jnp.int32), 1)
    few = jnp.minimum(few, free[-1])
    drawn = jax.random.randint(to_node, (), 0, few, jnp.int32)
    place = jnp.searchsorted(free, drawn, side="right")
    return DrawnMove(move, order.at[place].get(mode="fill", fill_value=len(order)))


def change(
    key: PRNGKeyArray, decisions: Shaped[jax.Array, " N"], drawn: DrawnMove, moves: Sequence[Move]
) -> jax.Array:
    """Return the candidate that a move makes of decisions `[N]`.

    Args:
      key: random key.
      decisions: current decisions, `[N]`.
      drawn: drawn decision and move.
      moves: all moves.
    """
    return lax.switch(drawn.move, moves, key, decisions, drawn.node)


def tell(
    state: State,
    drawn: DrawnMove,
    decisions: Shaped[jax.Array, " N"],
    cost: Shaped[jax.Array, ""],
    choices: Int32[jax.Array, ""],
    *,
    settings: Settings,
) -> State:
    """Return the state after a candidate, which is kept if its cost is not higher.

    Args:
      state: current state of the search.
      drawn: drawn decision and move.
      decisions: candidate, `[N]`.
      cost: its cost, `[]`.
      choices: number of decisions that may be changed, int32 `[]`.
      settings: settings of the guided search.
    """
    times, keep = state.draws.at[drawn.move].add(1), cost <= state.cost
    # At least one decision is awake.
    rest = (settings.rest_share * choices.astype(jnp.float32)).astype(jnp.int32)
    rest = jnp.minimum(rest, choices - 1)
    return State(
        jnp.where(keep, decisions, state.decisions),
        jnp.where(keep, cost, state.cost),
        jnp.where(cost < state.cost, 0, state.steps_since_improvement + 1),
        times,
        state.available_from.at[*drawn].set(times[drawn.move] + rest),
    )


def check_budget(evaluations: int, moves: Sequence[Move]) -> None:
    """Check that a search has evaluations and moves.

    Raises:
      ValueError: `evaluations` is less than one, or `moves` is empty.
    """
    if not evaluations >= 1:
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
    settings, start = settings or Settings(), jnp.asarray(start)
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
    blocks, rest = divmod(evaluations - 1, settings.guide_interval)
    whole = keys[: blocks * settings.guide_interval]
    history = [first[None]]
    if blocks:
        state, found = lax.scan(block, state, whole.reshape(blocks, settings.guide_interval))
        history.append(found.ravel())
    if rest:
        state, found = block(state, keys[-rest:])
        history.append(found)
    return DecisionResult(state.decisions, state.cost, jnp.concatenate(history))
