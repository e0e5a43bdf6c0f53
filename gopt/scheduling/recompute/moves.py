"""Random changes of a candidate for recomputation.

An op is drawn by the bytes that it makes. Then one of its splits changes, or those of all ops that
look alike (blocks of a model repeat), or those of a stretch of the program; or two ops near each
other exchange their choices; or one op moves in the order.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int32, PRNGKeyArray

from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices
from gopt.search.annealing import reflect

# Our choices. Shares of the changes: of one op, of alike ops, of a stretch, of an exchange.
SHARES = (0.4, 0.25, 0.1, 0.25)
MOVED = 0.25  # share of changes that move an op in the order, if candidates have an order
ANYWHERE = 0.1  # share of new splits of one op that are drawn from all its readers
LIGHT = 0.1  # share of the draws of an op that ignore its bytes
NEAR = 6  # ops exchange their choices with one of so many before or behind
ROUNDS = 3  # ops are alike if their neighbours up to this distance are


class Moves(NamedTuple):
    """Tables of the moves of one problem.

    Attributes:
      ops: int32 `[M]`; ops that may repeat and have readers; one op if there are none.
      heavy: float32 `[M]`; running shares of the draws of these ops.
      options: int32 `[N, 4]`; usual splits of each op: none; behind all readers; behind the readers
        before the largest and before the second largest gap.
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


def behind_all(problem: Problem, max_runs: int) -> Choices:
    """Return the candidate in which nothing runs again, except for ops that run again.

    Each op has a split behind the first runs of all its readers. So an op whose split is moved to
    an earlier place runs again, and so do the ops that it reads, as far as they are not held.
    """
    counts = np.where(problem.may_repeat, np.diff(problem.first_reader), 0)
    splits = np.zeros((problem.num_rows, max_runs - 1), np.int32)
    splits[:, :1] = counts[:, None]
    return Choices(None, splits)


def neighbour(problem: Problem, tables: Moves, key: PRNGKeyArray, choices: Choices) -> Choices:
    """Return a candidate with one random change.

    Args:
      problem: one problem.
      tables: the result of `moves`.
      key: random key.
      choices: one candidate.
    """
    to_kind, to_op, to_new, to_far, to_column, to_order = jax.random.split(key, 6)
    ops, splits = jnp.asarray(tables.ops), choices.splits
    draw = jax.random.uniform(to_op, (), jnp.float32)
    index = jnp.minimum(jnp.searchsorted(jnp.asarray(tables.heavy), draw), len(ops) - 1)
    op = ops[index]
    column = jax.random.randint(to_column, (), 0, max(splits.shape[1], 1), jnp.int32)
    is_column = jnp.arange(splits.shape[1], dtype=jnp.int32)[None] == column
    to_option, to_any, to_reader = jax.random.split(to_new, 3)
    option = jax.random.randint(to_option, (), 0, tables.options.shape[1], jnp.int32)
    new = jnp.asarray(tables.options)[:, option]
    every = jnp.arange(len(new), dtype=jnp.int32)

    anywhere = jax.random.uniform(to_any, (), jnp.float32) < ANYWHERE
    readers = problem.first_reader[op + 1] - problem.first_reader[op]
    drawn = jax.random.randint(to_reader, (), 0, readers + 1, jnp.int32)
    one = jnp.where(anywhere, drawn, new)
    length = (len(new) / 2) ** jax.random.uniform(to_far, (), jnp.float32)
    is_inside = (every >= op) & (every.astype(jnp.float32) < op + length)
    step = jax.random.randint(to_far, (), -NEAR, NEAR + 1, jnp.int32)
    other = ops[jnp.clip(index + step, 0, len(ops) - 1)]
    like = jnp.asarray(tables.options)[
        :, _option_of(tables, splits, column, jnp.stack([op, other]))
    ]

    kind = jax.random.categorical(to_kind, jnp.log(jnp.asarray(SHARES, jnp.float32)))
    masks = [every == op, jnp.asarray(tables.alike) == tables.alike[op], is_inside]
    changed = [
        jnp.where(mask[:, None] & is_column, value[:, None], splits)
        for mask, value in zip(masks, (one, new, new), strict=True)
    ]
    exchanged = jnp.where((every == op)[:, None] & is_column, like[:, 1:], splits)
    exchanged = jnp.where((every == other)[:, None] & is_column, like[:, :1], exchanged)
    result = choices._replace(splits=jnp.stack([*changed, exchanged])[kind])
    if choices.priority is None:
        return result
    to_move, to_place, to_scale, to_step = jax.random.split(to_order, 4)
    place = jax.random.randint(to_place, (), 0, problem.num_ops, jnp.int32)
    scale = jnp.float32(problem.num_ops) ** -jax.random.uniform(to_scale, (), jnp.float32)
    there = choices.priority[place] + scale * jax.random.normal(to_step, (), jnp.float32)
    moved = choices._replace(priority=choices.priority.at[place].set(reflect(there)))
    is_moved = jax.random.uniform(to_move, (), jnp.float32) < MOVED
    return jax.tree.map(lambda a, b: jnp.where(is_moved, a, b), moved, result)


def _option_of(tables: Moves, splits: jax.Array, column: jax.Array, ops: jax.Array) -> jax.Array:
    """Return which usual split each op has, int32 `[K]`; 0 if it has another one."""
    same = jnp.asarray(tables.options)[ops] == splits[ops, column][:, None]
    return jnp.argmax(same, axis=1)


def _options(problem: Problem, ops: np.ndarray) -> Int32[np.ndarray, "N 4"]:
    options = np.zeros((problem.num_rows, 4), np.int32)
    for op in ops.tolist():
        readers = problem.readers[problem.first_reader[op] : problem.first_reader[op + 1]]
        gaps = np.argsort(-np.diff(readers), kind="stable")[:2] + 1
        options[op] = (0, *[len(readers)] * 3)
        options[op, 2 : 2 + len(gaps)] = gaps
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
