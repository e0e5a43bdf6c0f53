"""Random changes of a candidate for recomputation.

An op is drawn by its bytes. Then one of five things happens: its splits change; the splits of all
ops that look alike change, because blocks of a model repeat; the splits of a stretch of the program
change; the op exchanges its choices with a near op; or an op moves in the order.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int32, PRNGKeyArray

from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices
from gopt.search.annealing import reflect

# Our choices. Shares of the changes: of one op, of alike ops, of a stretch, of an exchange.
SHARES = (0.4, 0.35, 0.1, 0.15)
MOVED = 0.1  # share of changes that move an op in the order, if candidates have an order
ANYWHERE = 0.1  # share of new splits of one op that are drawn from all its readers
LIGHT = 0.03  # share of the draws of an op that ignore its bytes
NEAR = 6  # ops exchange their choices with one of so many before or behind
ROUNDS = 3  # ops are alike if their neighbours up to this distance are


class Moves(NamedTuple):
    """Tables of the moves of one problem.

    Attributes:
      ops: int32 `[M]`; ops that may repeat and have readers; one op if there are none.
      heavy: float32 `[M]`; running shares of the draws of these ops.
      options: int32 `[N, 6]`; usual splits of each op: none; behind all readers; and for the two
        largest gaps between readers, behind the one before the gap and just before the one after.
      alike: int32 `[N]`; a number that is equal for ops that look alike.
    """

    ops: Any
    heavy: Any
    options: Any
    alike: Any


def moves(problem: Problem) -> Moves:
    """Return the tables of the moves of one problem; on the host."""
    n = problem.num_rows
    counts = np.diff(problem.first_reader)
    ops = np.flatnonzero(problem.may_repeat & (counts > 0))
    ops = ops if len(ops) else np.zeros(1, int)
    made = np.bincount(problem.producer, problem.size, minlength=n)[ops]
    weight = made / max(made.sum(), 1) * (1 - LIGHT) + LIGHT / len(ops)
    return Moves(
        ops=ops.astype(np.int32),
        heavy=(np.cumsum(weight) / weight.sum()).astype(np.float32),
        options=_options(problem, ops),
        alike=_alike(problem),
    )


def neighbour(problem: Problem, tables: Moves, key: PRNGKeyArray, choices: Choices) -> Choices:
    """Return a candidate with one random change.

    Args:
      problem: one problem.
      tables: the result of `moves`.
      key: random key.
      choices: one candidate.
    """
    tables = jax.tree.map(jnp.asarray, tables)
    ops, splits = tables.ops, choices.splits
    draws = iter(jax.random.uniform(key, (16,), jnp.float32))  # one draw is faster than many

    def below(count: Any) -> jax.Array:
        count = jnp.asarray(count, jnp.int32)
        drawn = next(draws) * count.astype(jnp.float32)
        return jnp.minimum(drawn.astype(jnp.int32), count - 1)

    index = jnp.minimum(jnp.searchsorted(tables.heavy, next(draws)), len(ops) - 1)
    op = ops[index]
    near = ops[jnp.clip(index + below(2 * NEAR + 1) - NEAR, 0, len(ops) - 1)]
    column = below(max(splits.shape[1], 1))
    new = tables.options[:, below(tables.options.shape[1])]
    every = jnp.arange(len(new), dtype=jnp.int32)

    readers = problem.first_reader[op + 1] - problem.first_reader[op]
    any_split = below(2 * readers + 1) - readers
    one = jnp.where(next(draws) < ANYWHERE, any_split, new[op])
    length = (len(new) / 2) ** next(draws)
    is_inside = (every >= op) & ((every - op).astype(jnp.float32) < length)
    of_near = tables.options[op, _option_of(tables, splits, column, near)]
    of_op = tables.options[near, _option_of(tables, splits, column, op)]

    # Of the kinds of change, one has ops to change; values are those of each op.
    kind = jnp.searchsorted(jnp.cumsum(jnp.asarray(SHARES, jnp.float32)), next(draws))
    is_op, is_near = every == op, every == near
    masks = [is_op, tables.alike == tables.alike[op], is_inside, is_op | is_near]
    value = jnp.where(kind == 0, one, new)
    value = jnp.where(kind == 3, jnp.where(is_op, of_near, of_op), value)
    mask = lax.select_n(jnp.minimum(kind, len(masks) - 1), *masks)
    is_column = jnp.arange(splits.shape[1], dtype=jnp.int32)[None] == column
    changed = jnp.where(mask[:, None] & is_column, value[:, None], splits)
    if choices.priority is None:
        return choices._replace(splits=changed)
    place = below(problem.num_ops)
    scale = problem.num_ops.astype(jnp.float32) ** -next(draws)
    step = scale * jax.scipy.special.ndtri(next(draws))
    there = reflect(choices.priority[place] + step)
    is_moved = next(draws) < MOVED
    priority = choices.priority.at[place].set(jnp.where(is_moved, there, choices.priority[place]))
    return Choices(priority, jnp.where(is_moved, splits, changed))


def _option_of(tables: Moves, splits: jax.Array, column: jax.Array, op: jax.Array) -> jax.Array:
    """Return which usual split an op has, int32 `[]`; 0 if it has another one."""
    return jnp.argmax(tables.options[op] == splits[op, column])


def _options(problem: Problem, ops: np.ndarray) -> Int32[np.ndarray, "N 6"]:
    options = np.zeros((problem.num_rows, 6), np.int32)
    for op in ops.tolist():
        readers = problem.readers[problem.first_reader[op] : problem.first_reader[op + 1]]
        gaps = np.argsort(-np.diff(readers), kind="stable")[:2] + 1
        every = len(readers)
        options[op] = 0, every, 0, 0, every, every
        options[op, 2 : 2 + len(gaps)] = gaps
        options[op, 4 : 4 + len(gaps)] = -(gaps + 1)
    return options


def _alike(problem: Problem) -> Int32[np.ndarray, " N"]:
    """Return colours of ops, refined by the colours of their neighbours (Weisfeiler, Leman)."""
    n, links = int(problem.num_ops), int(problem.num_links)
    sizes: list[list[int]] = [[] for _ in range(problem.num_rows)]
    for producer, size in zip(problem.producer.tolist(), problem.size.tolist(), strict=True):
        sizes[producer].append(size)
    pairs = list(zip(problem.maker[:links].tolist(), problem.reader[:links].tolist(), strict=True))
    names: list[Any] = [
        (int(problem.ticks[op]), tuple(sizes[op]), bool(problem.may_repeat[op])) for op in range(n)
    ]
    for _ in range(ROUNDS + 1):
        numbers = {name: k for k, name in enumerate(dict.fromkeys(names))}
        colours = [numbers[name] for name in names]
        makers: list[list[int]] = [[] for _ in range(n)]
        readers: list[list[int]] = [[] for _ in range(n)]
        for maker, reader in pairs:
            makers[reader].append(colours[maker])
            readers[maker].append(colours[reader])
        names = [
            (colours[op], tuple(sorted(makers[op])), tuple(sorted(readers[op]))) for op in range(n)
        ]
    found = np.full(problem.num_rows, -1, np.int32)
    found[:n] = colours
    return found
