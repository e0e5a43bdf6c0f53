"""Simulated annealing over any pytree of keys in [0, 1].

Chains run side by side. Each chain proposes a neighbour of its candidate. It always accepts a
neighbour of equal or lower cost. It accepts a worse one by chance, if the difference is of the
order of the temperature, which falls geometrically. At temperature zero this is hill climbing that
also accepts equal costs. Temperatures are shares of a chain's own cost, so settings do not depend
on units.

Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing", Science 220 (1983).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, Shaped

from gopt.search.loop import Loop, LoopResult, recorded, whole
from gopt.search.population import (
    KeysCost,
    Tree,
    assert_one_cost_per_candidate,
    is_concrete,
    uniforms,
)

Neighbour = Callable[[jax.Array, Tree], Tree]  # random key and one candidate to a neighbour


@dataclass(frozen=True)
class Settings:
    """Number of chains and cooling schedule.

    Attributes:
      chains: number of parallel chains, `C`.
      first_temperature: first temperature, as a share of a chain's cost.
      last_temperature: last temperature, as a share of a chain's cost.
    """

    chains: int = 1
    first_temperature: float = 0.01
    last_temperature: float = 0.0005

    def __post_init__(self) -> None:
        if not self.chains >= 1:
            raise ValueError(f"chains is {self.chains}: expected 1 at least")
        if not 0 <= self.last_temperature <= self.first_temperature < float("inf"):
            raise ValueError(
                f"first_temperature is {self.first_temperature}, last_temperature is "
                f"{self.last_temperature}: expected 0 <= last <= first"
            )


class State(NamedTuple):
    """Current and best candidates of C chains.

    Attributes:
      keys: current candidates, `[C, ...]`.
      cost: their costs, `[C]`.
      best_keys: best candidate that each chain has evaluated, `[C, ...]`.
      best_cost: their costs, `[C]`.
    """

    keys: Tree
    cost: jax.Array
    best_keys: Tree
    best_cost: jax.Array


def shift(key: PRNGKeyArray, keys: Tree) -> Tree:
    """Move one gene by a normal step with a scale between 1/1000 and 1.

    A leaf is drawn, then one of its genes. Scales are log-uniform, so small and large steps are
    equally likely. Steps are reflected at 0 and 1.

    Args:
      key: random key.
      keys: one candidate.

    Returns:
      The neighbour, a pytree like `keys`.
    """
    leaves, structure = jax.tree.flatten(keys)
    to_leaf, to_gene, to_scale, to_step = jax.random.split(key, 4)
    chosen = jax.random.randint(to_leaf, (), 0, len(leaves), jnp.int32)
    scale = 10 ** jax.random.uniform(to_scale, (), jnp.float32, -3.0, 0.0)
    step = scale * jax.random.normal(to_step, (), jnp.float32)
    place = jax.random.uniform(to_gene, (), jnp.float32)

    def moved(index: int, leaf: jax.Array) -> jax.Array:
        genes = jnp.ravel(leaf)
        gene = jnp.minimum((place * genes.size).astype(jnp.int32), genes.size - 1)
        genes = genes.at[gene].set(
            jnp.where(chosen == index, reflect(genes[gene] + step), genes[gene])
        )
        return genes.reshape(jnp.shape(leaf))

    return jax.tree.unflatten(structure, [moved(i, leaf) for i, leaf in enumerate(leaves)])


def reflect(key: jax.Array) -> jax.Array:
    """Fold a number into [0, 1] by reflection at both ends."""
    return jnp.abs((key + 1) % 2 - 1)


def init(keys: Tree, cost: Shaped[jax.Array, " K"], *, settings: Settings) -> State:
    """Start chains from the best of the candidates `[K, ...]`, repeating them if K < C.

    Args:
      keys: candidates, `[K, ...]`.
      cost: their costs, `[K]`.
      settings: chains and temperatures.
    """
    assert_one_cost_per_candidate(keys, cost)
    order = jnp.argsort(cost, stable=True)[jnp.arange(settings.chains) % len(cost)]
    keys, cost = jax.tree.map(lambda leaf: jnp.asarray(leaf)[order], keys), cost[order]
    return State(keys, cost, keys, cost)


def ask(key: PRNGKeyArray, state: State, *, neighbour: Neighbour = shift) -> Tree:
    """Return the next candidates to evaluate, one per chain, `[C, ...]`.

    Args:
      key: random key.
      state: current chains.
      neighbour: function that draws a neighbour of one candidate.
    """
    return jax.vmap(neighbour)(jax.random.split(key, len(state.cost)), state.keys)


def tell(
    key: PRNGKeyArray,
    state: State,
    keys: Tree,
    cost: Shaped[jax.Array, " c"],
    *,
    temperature: jax.Array | float,
) -> State:
    """Return the chains after each has accepted or rejected its candidate.

    Args:
      key: random key.
      state: current chains.
      keys: a candidate for each of the first c chains, `[c, ...]`, c at most C.
      cost: their costs, `[c]`.
      temperature: temperature, as a share of a chain's cost.

    Raises:
      ValueError: a concrete `temperature` is negative.
      AssertionError: there is not one cost per candidate.
    """
    if is_concrete(temperature) and not np.all(np.asarray(temperature) >= 0):
        raise ValueError(f"temperature is {temperature}: expected 0 at least")
    assert_one_cost_per_candidate(keys, cost)
    count = len(cost)
    tiny = jnp.finfo(jnp.float32).tiny
    chance = jnp.log(jax.random.uniform(key, (count,), jnp.float32, tiny))
    worse = cost - state.cost[:count]
    # Equal costs are always accepted: log(1) is at least 0, even at temperature zero.
    moves = worse <= -chance * temperature * jnp.abs(state.cost[:count])
    finds = cost < state.best_cost[:count]

    def put(mask: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
        mask = mask.reshape(-1, *[1] * (new.ndim - 1))
        return old.at[:count].set(jnp.where(mask, new, old[:count]))

    def merge(mask: jax.Array, old: Tree, new: Tree) -> Tree:
        return jax.tree.map(lambda a, b: put(mask, a, b), old, new)

    return State(
        merge(moves, state.keys, keys),
        put(moves, state.cost, cost),
        merge(finds, state.best_keys, keys),
        put(finds, state.best_cost, cost),
    )


def minimize(
    key: PRNGKeyArray,
    cost: KeysCost,
    template: Tree,
    *,
    evaluations: int,
    settings: Settings | None = None,
    neighbour: Neighbour = shift,
    initial: Tree | None = None,
) -> LoopResult:
    """Run simulated annealing; jit it, and vmap it over problems.

    Exactly `evaluations` candidates are evaluated. The first are all given ones, or otherwise
    uniform ones, one per chain as far as the budget allows. Each later step evaluates one per
    chain, the last step possibly fewer. The result costs at most as much as any given candidate, up
    to the precision of `cost`: a float32 has 24 bits.

    Args:
      key: random key.
      cost: function from the keys of any number of candidates, `[P, ...]`, to costs `[P]`.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      evaluations: number of candidates to evaluate.
      settings: chains and temperatures.
      neighbour: function that draws a neighbour of one candidate.
      initial: starting candidates, `[K, ...]`; the chains start from the best, repeated if K < C.

    Returns:
      The best candidate, its cost, the history and the final chains.

    Raises:
      ValueError: `evaluations` is less than one, or less than the number of given candidates.
      AssertionError: `cost` does not return one cost per candidate.
    """
    return whole(
        loop,
        key,
        cost,
        template,
        evaluations=evaluations,
        settings=settings,
        neighbour=neighbour,
        initial=initial,
    )


def loop(
    key: PRNGKeyArray,
    cost: KeysCost,
    template: Tree,
    *,
    evaluations: int,
    settings: Settings | None,
    neighbour: Neighbour = shift,
    initial: Tree | None = None,
) -> Loop:
    """Return simulated annealing as a loop; for arguments and errors see `minimize`."""
    settings = settings or Settings()
    to_init, to_run = jax.random.split(key)
    if initial is None:
        if not evaluations >= 1:
            raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
        initial = uniforms(to_init, template, min(settings.chains, evaluations))
    count = len(jax.tree.leaves(initial)[0])
    if not count:
        raise ValueError("initial has 0 candidates: expected 1 at least")
    if not evaluations >= count:
        raise ValueError(f"evaluations is {evaluations}: expected {count} at least")
    steps = (evaluations - count) // settings.chains
    cooling = jnp.linspace(0, 1, steps + 1, dtype=jnp.float32)
    temperatures = (
        settings.first_temperature
        * (settings.last_temperature / max(settings.first_temperature, 1e-30)) ** cooling
    )
    randoms = jax.random.split(to_run, steps + 1)

    def first() -> State:
        return init(initial, cost(initial), settings=settings)

    def move(state: State, index: Any, chains: int) -> State:
        to_ask, to_tell = jax.random.split(randoms[index])
        keys = jax.tree.map(lambda leaf: leaf[:chains], ask(to_ask, state, neighbour=neighbour))
        return tell(to_tell, state, keys, cost(keys), temperature=temperatures[index])

    def best(state: State) -> tuple[Tree, jax.Array]:
        index = jnp.argmin(state.best_cost)
        return jax.tree.map(lambda leaf: leaf[index], state.best_keys), state.best_cost[index]

    return recorded(first, move, best, evaluations=evaluations, start=count, each=settings.chains)
