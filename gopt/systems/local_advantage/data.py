"""Training data of the network: advantages of all decisions along Gibbs sampling."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32, PRNGKeyArray

from gopt.cost.fusion.cost import flipped_costs, fusion_cost
from gopt.cost.fusion.problem import FusionProblem
from gopt.learning.settings import check_numbers
from gopt.search import gibbs


@dataclass(frozen=True)
class Sampling:
    """Settings of Gibbs sampling.

    Attributes:
      chains: number of chains. Half of them start from the default configuration, half from random
        ones, whose shares of fused ops are evenly spaced.
      records: configurations recorded of each chain, the first one included.
      sweep: share of the ops visited between two records.
      coldest: temperature of the first chain of each half, in units of the median size of the
        nonzero advantages at its start.
      hottest: temperature of the last chain of each half, if it has two; the others are spaced
        geometrically between.
    """

    chains: int = 8
    records: int = 16
    sweep: float = 0.25
    coldest: float = 0.1
    hottest: float = 3.0

    def __post_init__(self) -> None:
        check_numbers(self, "chains", at_least=2)
        if self.chains % 2:
            raise ValueError(f"chains is {self.chains}: expected an even number")
        check_numbers(self, "records", at_least=1)
        check_numbers(self, "sweep", above=0, at_most=1)
        check_numbers(self, "hottest", above=0)
        check_numbers(self, "coldest", above=0, at_most=self.hottest)


class Records(NamedTuple):
    """Configurations of one graph, and the advantages of their decisions.

    `S` configurations of `N` ops, with padding, which is never fused.

    Attributes:
      fuse: bool `[S, N]`, fused ops.
      cost: int32 `[S]`, cost in ticks.
      advantage: int32 `[S, N]`, cost if the op is fused minus cost if it is not, in ticks.
    """

    fuse: Any
    cost: Any
    advantage: Any


def advantages(problem: FusionProblem, fuse: Bool[jax.Array, " N"]) -> Int32[jax.Array, " N"]:
    """Return f(y_v = fused; y_-v) = cost(fused, y_-v) - cost(not fused, y_-v), int32 `[N]`.

    Args:
      problem: one problem.
      fuse: bool `[N]`, with padding, y.
    """
    other, own = flipped_costs(problem, fuse), fusion_cost(problem, fuse)
    return jnp.where(fuse, own - other, other - own)


def sample(
    key: PRNGKeyArray,
    problem: FusionProblem,
    default: Any,
    *,
    sampling: Sampling,
) -> Records:
    """Return the configurations that Gibbs sampling visits, chain by chain.

    Each chain sweeps the ops in their order. A visit compares the costs of one decision at the
    chain's current configuration. A record holds the advantages of all ops at one configuration, so
    that one pass of a network serves them all.

    Args:
      key: random key.
      problem: one problem.
      default: bool `[N]`, with padding, the compiler's configuration.
      sampling: settings of the sampling.

    Raises:
      ValueError: no op is configurable.
    """
    if not int(problem.num_choices):
        raise ValueError("problem has no configurable op: expected 1 at least")
    to_start, to_run = jax.random.split(key)
    half = sampling.chains // 2
    shares = (jnp.arange(half, dtype=jnp.float32) + 0.5) / half
    uniform = jax.random.uniform(to_start, (half, len(problem.compute)), jnp.float32)
    starts = jnp.concatenate([jnp.tile(jnp.asarray(default), (half, 1)), uniform < shares[:, None]])
    steps = jnp.linspace(0, 1, half, dtype=jnp.float32)
    temperature = sampling.coldest * (sampling.hottest / sampling.coldest) ** steps
    problem = jax.tree.map(jnp.asarray, problem)
    run = partial(_chain, sampling=sampling)
    keys = jax.random.split(to_run, sampling.chains)
    found = jax.jit(jax.vmap(run, (0, None, 0, 0)))(
        keys, problem, starts & problem.configurable[None], jnp.tile(temperature, 2)
    )
    return Records(*(np.asarray(x).reshape(-1, *x.shape[2:]) for x in found))


def _chain(
    key: jax.Array,
    problem: FusionProblem,
    start: jax.Array,
    temperature: jax.Array,
    *,
    sampling: Sampling,
) -> Records:
    count = problem.num_choices
    visits = jnp.maximum((sampling.sweep * count.astype(jnp.float32)).astype(jnp.int32), 1)

    def costs(decisions: jax.Array) -> jax.Array:
        return jax.vmap(fusion_cost, (None, 0))(problem, decisions > 0)

    def record(state: gibbs.State) -> Records:
        fuse = state.decisions > 0
        return Records(fuse, state.cost, advantages(problem, fuse))

    state = gibbs.init(start, costs)
    first = record(state)
    scale = _median_nonzero(jnp.abs(first.advantage))

    def step(state: gibbs.State, k: jax.Array) -> tuple[gibbs.State, Records]:
        places = k * visits + jnp.arange(problem.choices.size, dtype=jnp.int32)
        # Choices are sorted from the last op to the first.
        nodes = problem.choices[count - 1 - places % count]
        state = gibbs.sweep(
            jax.random.fold_in(key, k), state, nodes, visits, costs, temperature=temperature * scale
        )
        return state, record(state)

    _, others = jax.lax.scan(step, state, jnp.arange(sampling.records - 1, dtype=jnp.int32))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, others)


def _median_nonzero(values: jax.Array) -> jax.Array:
    """Return the median of the values `[N]` above 0, float32 `[]`; 1 without any."""
    values = jnp.sort(values.astype(jnp.float32))
    count = jnp.sum(values > 0, dtype=jnp.int32)
    # The largest `count` values are at the end.
    low, high = (len(values) - 1 - middle for middle in (count // 2, (count - 1) // 2))
    return jnp.where(count > 0, 0.5 * values[low] + 0.5 * values[high], 1)
