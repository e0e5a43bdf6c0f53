"""Random search: the baseline that every search must beat."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PRNGKeyArray

from gopt.search.brkga import Proposal, Settings, State, init, sort, uniform
from gopt.search.loop import LoopResult
from gopt.search.population import KeysCost, Tree


def minimize(
    key: PRNGKeyArray,
    cost: KeysCost,
    template: Tree,
    *,
    evaluations: int,
    block: int = 100,
    proposal: Proposal = uniform,
) -> LoopResult:
    """Return the best of `evaluations` candidates drawn from a proposal.

    Args:
      key: random key.
      cost: function from a population of keys `[P, ...]` to costs `[P]`.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      evaluations: number of candidates to evaluate.
      block: number of candidates to evaluate at once.
      proposal: distribution of the genes.

    Returns:
      The best candidate, its cost, and the history over blocks.

    Raises:
      ValueError: `evaluations` or `block` is less than one.
      AssertionError: `cost` does not return one cost per candidate.
    """
    for name, value in (("evaluations", evaluations), ("block", block)):
        if not value >= 1:
            raise ValueError(f"{name} is {value}: expected 1 at least")
    blocks = -(-evaluations // block)
    settings = Settings(population=max(block, 2), elites=1, mutants=0)

    def step(best: State | None, key: jax.Array, count: int) -> State:
        keys = init(key, template, settings=settings, proposal=proposal)
        keys = jax.tree.map(lambda leaf: leaf[:count], keys)
        drawn = sort(keys, cost(keys))
        top = jax.tree.map(lambda leaf: leaf[:1], drawn)
        if best is None:
            return top
        both = jax.tree.map(lambda *parts: jnp.concatenate(parts), best, top)
        return jax.tree.map(lambda leaf: leaf[:1], sort(both.keys, both.cost))

    def scanned(best: State, key: jax.Array) -> tuple[State, jax.Array]:
        best = step(best, key, block)
        return best, best.cost[0]

    keys = jax.random.split(key, blocks)
    last = evaluations - (blocks - 1) * block
    best = step(None, keys[0], last)
    start = best.cost
    best, history = lax.scan(scanned, best, keys[1:])
    return LoopResult(
        best=jax.tree.map(lambda leaf: leaf[0], best.keys),
        cost=best.cost[0],
        history=jnp.concatenate([start, history]),
        evaluations=last + block * jnp.arange(blocks, dtype=jnp.int32),
        last=best,
    )
