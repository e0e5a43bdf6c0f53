"""Biased random-key genetic algorithm (BRKGA) over any pytree of keys in [0, 1].

A generation keeps its elites, draws mutants from a proposal and fills up with offspring. Each gene
of an offspring comes from an elite parent with probability `bias`, otherwise from a non-elite one.
Only new candidates are evaluated: g generations of p candidates with e elites take p + g (p - e)
evaluations.

Source: Gonçalves and Resende, "Biased random-key genetic algorithms for combinatorial
optimization", Journal of Heuristics 17 (2011).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, Shaped

from gopt.search.loop import Loop, LoopResult, recorded, whole
from gopt.search.population import (
    KeysCost,
    Tree,
    assert_one_cost_per_candidate,
    check_probabilities,
    coins,
    uniforms,
)
from gopt.search.relaxed import relaxed_first

Proposal = Callable[[Tree], Tree]  # one uniform in [0, 1) per gene, to keys of mutants


@dataclass(frozen=True)
class Settings:
    """Sizes of a generation. The defaults are in the ranges that the source recommends.

    Attributes:
      population: number of candidates in a generation, `P`.
      elites: number of best candidates that are kept.
      mutants: number of candidates drawn from the proposal in each generation.
    """

    population: int = 100
    elites: int = 20
    mutants: int = 10

    def __post_init__(self) -> None:
        if not self.population >= 2:
            raise ValueError(
                f"population is {self.population}: expected 2 at least, an elite and another"
            )
        if not 0 < self.elites < self.population:
            raise ValueError(f"elites is {self.elites}: expected 1..{self.population - 1}")
        if not 0 <= self.mutants <= self.population - self.elites:
            raise ValueError(
                f"mutants is {self.mutants}: expected 0..{self.population - self.elites}"
            )


class State(NamedTuple):
    """A generation of P candidates, best first.

    Attributes:
      keys: candidates, `[P, ...]`.
      cost: their costs, `[P]`.
    """

    keys: Tree
    cost: jax.Array


def uniform(u: Tree) -> Tree:
    """Return uniforms unchanged: the uniform proposal."""
    return u


def init(
    key: PRNGKeyArray,
    template: Tree,
    *,
    settings: Settings,
    proposal: Proposal = uniform,
    initial: Tree | None = None,
) -> Tree:
    """Return the keys of a first population, `[P, ...]`.

    Args:
      key: random key.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      settings: sizes of a generation.
      proposal: distribution of the genes.
      initial: candidates `[K, ...]` that come first in the population, K at most P.

    Raises:
      ValueError: `initial` has more candidates than the population.
    """
    population = proposal(uniforms(key, template, settings.population))
    if initial is None:
        return population
    count = len(jax.tree.leaves(initial)[0])
    if count > settings.population:
        raise ValueError(f"initial has {count} candidates: expected {settings.population} at most")
    return jax.tree.map(lambda drawn, own: drawn.at[:count].set(own), population, initial)


def ask(
    key: PRNGKeyArray,
    state: State,
    *,
    settings: Settings,
    proposal: Proposal = uniform,
    bias: Tree | float = 0.7,
) -> Tree:
    """Return the keys of the next candidates to evaluate, `[P - elites, ...]`, mutants last.

    Args:
      key: random key.
      state: current generation.
      settings: sizes of a generation.
      proposal: distribution of the genes of mutants.
      bias: probability that a gene comes from the elite parent, rounded to a 256th; one number, or
        a pytree like the keys whose leaves broadcast against one candidate.

    Raises:
      ValueError: a concrete `bias` is not in 0..1.
    """
    e, p = settings.elites, settings.population
    children = p - e - settings.mutants
    to_elite, to_other, to_coin, to_mutant = jax.random.split(key, 4)
    elite = jax.random.randint(to_elite, (children,), 0, e, jnp.int32)
    other = jax.random.randint(to_other, (children,), e, p, jnp.int32)
    one = jax.tree.map(lambda leaf: leaf[0], state.keys)
    coin = coins(to_coin, one, children, bias)
    mutants = proposal(uniforms(to_mutant, one, settings.mutants))

    # XLA fuses the gathers and the choice into one loop, but not into a concatenation.
    def join(leaf: jax.Array, coin: jax.Array, mutants: jax.Array) -> jax.Array:
        offspring = jnp.where(coin, leaf[elite], leaf[other])
        new = jnp.empty((p - e, *leaf.shape[1:]), leaf.dtype)
        return new.at[:children].set(offspring).at[children:].set(mutants)

    return jax.tree.map(join, state.keys, coin, mutants)


def tell(state: State, keys: Tree, cost: jax.Array, *, settings: Settings) -> State:
    """Return the next generation: the elites and the evaluated candidates.

    Args:
      state: current generation.
      keys: candidates that `ask` returned, or the first of them.
      cost: their costs.
      settings: sizes of a generation.
    """
    e = settings.elites
    return sort(
        jax.tree.map(lambda old, new: jnp.concatenate([old[:e], new]), state.keys, keys),
        jnp.concatenate([state.cost[:e], cost]),
    )


def sort(keys: Tree, cost: Shaped[jax.Array, " P"]) -> State:
    """Return a generation of the given candidates, best first; equal costs keep their order.

    Args:
      keys: candidates, `[P, ...]`.
      cost: their costs, `[P]`.

    Raises:
      AssertionError: `cost` does not have one entry per candidate.
    """
    assert_one_cost_per_candidate(keys, cost)
    order = jnp.argsort(cost, stable=True)
    return State(jax.tree.map(lambda leaf: leaf[order], keys), cost[order])


def minimize(
    key: PRNGKeyArray,
    cost: KeysCost,
    template: Tree,
    *,
    evaluations: int,
    settings: Settings | None = None,
    proposal: Proposal = uniform,
    bias: Tree | float = 0.7,
    initial: Tree | None = None,
    relaxed: KeysCost | None = None,
) -> LoopResult:
    """Run BRKGA; jit it, and vmap it over problems.

    Exactly `evaluations` candidates are evaluated: a first population or a last generation that
    exceeds the budget is cut short.

    If a relaxed cost is given, a whole run on it comes first, with the share `RELAXED_SHARE` of the
    evaluations. The search continues from its last generation and the given candidates. The history
    is infinite during the relaxed run, and the result is the best candidate after it. If either run
    would have fewer evaluations than two populations, `relaxed` is ignored.

    Args:
      key: random key.
      cost: function from a population of keys `[P, ...]` to costs `[P]`.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      evaluations: number of candidates to evaluate.
      settings: sizes of a generation.
      proposal: distribution of the genes of the first population and of mutants.
      bias: probability that a gene comes from the elite parent, see `ask`.
      initial: starting candidates, `[K, ...]`.
      relaxed: cost like `cost` that need not rank infeasible candidates below feasible ones.

    Returns:
      The best candidate, its cost, the history and the last generation.

    Raises:
      ValueError: `evaluations` is less than one, or less than the number of given candidates; or a
        concrete `bias` is not in 0..1.
      AssertionError: `cost` does not return one cost per candidate.
    """
    costs = {False: cost, True: relaxed}

    def one(
        key: jax.Array, *, is_relaxed: bool, evaluations: int, initial: Tree | None
    ) -> LoopResult:
        return whole(
            loop,
            key,
            costs[is_relaxed],
            template,
            evaluations=evaluations,
            settings=settings,
            proposal=proposal,
            bias=bias,
            initial=initial,
        )

    return relaxed_first(
        one,
        key,
        evaluations=evaluations,
        population=(settings or Settings()).population,
        initial=initial,
        has_relaxed=relaxed is not None,
    )


def loop(
    key: PRNGKeyArray,
    cost: KeysCost,
    template: Tree,
    *,
    evaluations: int,
    settings: Settings | None,
    proposal: Proposal = uniform,
    bias: Tree | float = 0.7,
    initial: Tree | None = None,
) -> Loop:
    """Return a run of BRKGA on one cost as a loop; for arguments and errors see `minimize`."""
    settings = settings or Settings()
    check_probabilities(bias, "bias")  # also if the budget makes no offspring
    p, fresh = settings.population, settings.population - settings.elites
    to_init, to_run, to_rest = jax.random.split(key, 3)
    randoms = jax.random.split(to_run, max((evaluations - p) // fresh, 1))

    def first() -> State:
        keys = init(to_init, template, settings=settings, proposal=proposal, initial=initial)
        keys = jax.tree.map(lambda leaf: leaf[:evaluations], keys)
        return sort(keys, cost(keys))

    def move(state: State, index: Any, count: int) -> State:
        key = randoms[index] if count == fresh else to_rest
        keys = ask(key, state, settings=settings, proposal=proposal, bias=bias)
        keys = jax.tree.map(lambda leaf: leaf[:count], keys)
        return tell(state, keys, cost(keys), settings=settings)

    def best(state: State) -> tuple[Tree, jax.Array]:
        return jax.tree.map(lambda leaf: leaf[0], state.keys), state.cost[0]

    return recorded(
        first, move, best, evaluations=evaluations, start=min(p, evaluations), each=fresh
    )
