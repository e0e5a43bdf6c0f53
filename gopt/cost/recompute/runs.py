"""Candidates for recomputation, and the sequence of runs that each stands for.

A candidate has a priority for each op, and numbers that say where its later runs begin:

1. First runs are ordered by priority. An op runs when its priority says, at the latest just before
   the first op that reads it.
2. Split k > 0 of an op lies behind the first run of its k-th reader, in the order of the program;
   split -k lies just before that run. Whatever reads the op after a split reads a later run of it,
   as late as possible: the run comes just before the first such reader. Readers are first runs and
   later runs of other ops.
3. If nothing reads the op after a split, or if two splits begin with the same reader, there is one
   run less.

Source: our own. The retention intervals of Bartan et al., "MOCCASIN" (ICML 2023), are the nearest
relative: there a solver chooses begin and end of each run in a fixed order.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int32

from gopt.cost.recompute.problem import Problem
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.engine.ranking import key_bits, rank_by_key
from gopt.xla.calls import uninlined

NEVER = 2**30  # position of a run that does not happen


class Choices(NamedTuple):
    """One candidate, or a population with leading axis `P`. `R` is the largest number of runs.

    Attributes:
      priority: float32 `[N]` in 0..1; ops with smaller ones run earlier. `None` for the order of
        the program.
      splits: int32 `[N, R - 1]`; reader of an op behind which a split lies, from 1; negative if it
        lies just before that reader; 0 for no split. Numbers beyond the last reader mean the
        last one. Splits of ops that may not repeat are ignored.
    """

    priority: Any
    splits: Any


def check_choices(problem: Problem, choices: Choices) -> None:
    """Raise `ValueError` if one candidate does not have the shapes of the problem."""
    n = problem.num_rows
    shape = jnp.shape(choices.splits)
    if len(shape) != 2 or shape[0] != n:
        raise ValueError(
            f"choices.splits has shape {shape}: expected ({n}, runs - 1); use jax.vmap for a "
            "population"
        )
    if choices.priority is not None and jnp.shape(choices.priority) != (n,):
        raise ValueError(
            f"choices.priority has shape {jnp.shape(choices.priority)}: expected ({n},)"
        )


def behind_all(problem: Problem, max_runs: int) -> Choices:
    """Return the candidate in which nothing runs again, in the order of the program.

    Each op has a split behind the first runs of all its readers. So if the split of one op moves to
    an earlier place, it runs again, and so does what it reads, as far as that is not held.
    """
    counts = np.where(problem.may_repeat, np.diff(problem.first_reader), 0)
    splits = np.zeros((problem.num_rows, max_runs - 1), np.int32)
    splits[:, :1] = counts[:, None]
    return Choices(None, splits)


@uninlined
def first_positions(problem: Problem, priority: Any) -> Int32[jax.Array, " N"]:
    """Return the place of each op's first run among all first runs; inputs come first.

    Args:
      problem: one problem.
      priority: float32 `[N]`, or `None` for the order of the program.
    """
    n = problem.num_rows
    ops = jnp.arange(n, dtype=jnp.int32)
    if priority is None:
        by_rank, rank = ops, ops
    else:

        def pull(state: Any) -> Any:
            k, bits = state
            maker, reader = load(problem.maker, k), load(problem.reader, k)
            least = jnp.minimum(load(bits, reader), load(bits, maker))
            return k + 1, store(bits, maker, least)

        state = jnp.int32(0), key_bits(priority)
        _, bits = lax.while_loop(lambda s: s[0] < problem.num_links, pull, state)
        key = lax.bitcast_convert_type(bits, jnp.float32)
        by_rank, rank = rank_by_key(key, ops, problem.num_ops)
        real = ops < problem.num_ops
        by_rank, rank = jnp.where(real, by_rank, ops), jnp.where(real, rank, ops)
    inputs = problem.is_input[by_rank].astype(jnp.int32)
    before = jnp.cumsum(inputs, dtype=jnp.int32) - inputs
    total = jnp.sum(inputs, dtype=jnp.int32)
    place = jnp.where(inputs > 0, before, total + ops - before)
    return place[rank]


@uninlined
def slots(
    problem: Problem, first: Int32[jax.Array, " N"], splits: Int32[jax.Array, "N R-1"]
) -> Int32[jax.Array, "R N"]:
    """Return the slot of each run: the place of the first run before which it happens.

    The first row is `first`. Later rows rise; `NEVER` for runs that do not happen.
    """
    later = splits.shape[1]
    counts = problem.first_reader[1:] - problem.first_reader[:-1]
    splits = jnp.where((problem.may_repeat & (counts > 0))[:, None], splits, 0)
    number = jnp.minimum(jnp.abs(splits), counts[:, None])
    reader = problem.readers[jnp.maximum(problem.first_reader[:-1, None] + number - 1, 0)]
    place = jnp.where(splits < 0, first[reader] - 1, first[reader])
    split = jnp.sort(jnp.where(number > 0, place, NEVER), axis=1)
    bounds = [split[:, run] for run in range(later)]
    begins = [jnp.full_like(first, NEVER) for _ in range(later)]

    def visit(state: Any) -> Any:
        k, begins = state
        maker, reader = load(problem.maker, k), load(problem.reader, k)
        is_read = load(problem.is_read, k)
        reads = [load(first, reader), *(load(begin, reader) for begin in begins)]
        moved = []
        for bound, begin in zip(bounds, begins, strict=True):
            after, least = load(bound, maker), load(begin, maker)
            for read in reads:
                least = jnp.where(is_read & (read > after), jnp.minimum(least, read), least)
            moved.append(store(begin, maker, least))
        return k + 1, moved

    state = jnp.int32(0), begins
    _, begins = lax.while_loop(lambda s: s[0] < problem.num_links, visit, state)
    rows = [first]
    for begin in begins:  # two splits with one first reader are one run
        is_new = jnp.all(jnp.stack([begin != row for row in rows]), axis=0)
        rows.append(jnp.where(is_new, begin, NEVER))
    return jnp.stack([first, *jnp.sort(jnp.stack(rows[1:]), axis=0)]) if later else first[None]


@uninlined
def positions(problem: Problem, slots: Int32[jax.Array, "R N"]) -> Int32[jax.Array, "R N"]:
    """Return the place of each run in the whole sequence, from 0; `NEVER` if it does not happen.

    Runs of one slot follow each other in the order of the program, the first run last.
    """
    runs, n = slots.shape
    ops = jnp.arange(n, dtype=jnp.int32)
    again = slots[1:]
    counts = jnp.zeros(n, jnp.int32).at[again].add(1, mode="drop")
    begin = jnp.cumsum(counts, dtype=jnp.int32) - counts + ops

    def visit(state: Any) -> Any:
        op, filled, rows = state
        moved = []
        for slot, row in zip(again, rows, strict=True):
            at = load(slot, op)
            cell = jnp.minimum(at, n)  # one spare cell
            filled = store(filled, cell, load(filled, cell) + 1)
            here = load(filled, cell) - 1
            moved.append(store(row, op, jnp.where(at < NEVER, here, NEVER)))
        return op + 1, filled, moved

    rows = [jnp.full(n, NEVER, jnp.int32) for _ in range(runs - 1)]
    if rows:
        state = jnp.int32(0), jnp.append(begin, 0), rows
        _, _, rows = lax.while_loop(lambda s: s[0] < problem.num_ops, visit, state)
    first = (begin + counts)[slots[0]]
    return jnp.stack([first, *rows])
