"""A search that begins with a relaxed cost, which does not tell infeasible candidates apart."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from gopt.search.population import Tree

RELAXED_SHARE = 0.5  # share of the evaluations spent on a relaxed cost, if one is given


def relaxed_first(
    one: Callable[..., Any],
    key: PRNGKeyArray,
    *,
    evaluations: int,
    population: int,
    initial: Tree | None,
    has_relaxed: bool,
) -> Any:
    """Return the result of one run, or of a relaxed run and one that goes on from it.

    Args:
      one: function of a key that makes a run, with the keywords `is_relaxed`, `evaluations` and
        `initial`.
      key: random key.
      evaluations: number of candidates to evaluate.
      population: number of candidates in a generation.
      initial: starting candidates, `[K, ...]`.
      has_relaxed: whether there is a relaxed cost.

    Raises:
      ValueError: `evaluations` is less than one, or less than the number of given candidates.
    """
    count = 0 if initial is None else len(jax.tree.leaves(initial)[0])
    if not evaluations >= max(1, count):
        raise ValueError(f"evaluations is {evaluations}: expected {max(1, count)} at least")
    spent = round(RELAXED_SHARE * evaluations)
    if not has_relaxed or min(spent, evaluations - spent) < 2 * population:
        return one(key, is_relaxed=False, evaluations=evaluations, initial=initial)
    to_relax, key = jax.random.split(key)
    first = one(to_relax, is_relaxed=True, evaluations=spent, initial=initial)
    start = first.last.keys
    if initial is not None:
        start = jax.tree.map(
            lambda own, found: jnp.concatenate([own, found[: population - count]]), initial, start
        )
    last = one(key, is_relaxed=False, evaluations=evaluations - spent, initial=start)
    unknown = jnp.full(first.history.shape, jnp.inf, first.history.dtype)
    return last._replace(
        history=jnp.concatenate([unknown, last.history]),
        evaluations=jnp.concatenate([first.evaluations, first.evaluations[-1] + last.evaluations]),
    )
