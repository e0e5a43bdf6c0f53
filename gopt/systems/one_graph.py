"""Systems that learn from scratch on the one graph that they place: training is the search."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jaxtyping import Float32, Int32

from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import Problem
from gopt.learning.train import TrainState
from gopt.search.result import SearchResult

Tree = Any
# Maps devices of ops, int32 [P, N], to costs, float32 [P].
PlacementCost = Callable[[jax.Array], jax.Array]


@struct.dataclass
class Task:
    """A graph to be placed. It may be passed through `jax.jit` if `cost` is hashable.

    Attributes:
      inputs: the graph on a machine, as the system reads it.
      cost: maps devices of ops, int32 `[P, N]`, to costs, float32 `[P]`.
    """

    inputs: Any
    cost: PlacementCost = struct.field(pytree_node=False)


class State(TrainState):
    """The state of training, and the best placement so far.

    Attributes:
      unit: float32 `[]`, unit of costs; infinite before the first finite cost.
      device: int32 `[N]`, best placement, see `gopt.cost.schedule.dispatch.legalize_placement`.
      cost: float32 `[]`, cost of the best placement; infinite before the first finite cost.
    """

    unit: Any
    device: Any
    cost: Any


@dataclass(frozen=True)
class Training:
    """Training of one system on one graph, as a search.

    Attributes:
      init: function of the system that makes parameters, from a key and inputs.
      start: function of the system that makes the first state, from parameters and a task.
      step: function of the system that trains one step. Its metric `costs`, `[..., S]`, has the
        costs of all placements of the step.
      step_evaluations: maps inputs and settings to the number of placements that a step costs.
      is_start_costed: whether `start` costs one placement; the cost is `first` in the state.
      settings_for: maps settings and the number of steps to the settings of a run.
    """

    init: Callable[..., Tree]
    start: Callable[..., Any]
    step: Callable[..., tuple[Any, dict[str, jax.Array]]]
    step_evaluations: Callable[[Any, Any], int]
    is_start_costed: bool = False
    settings_for: Callable[[Any, int], Any] = lambda settings, steps: settings

    def run(
        self,
        key: jax.Array,
        inputs: Any,
        cost: PlacementCost,
        *,
        steps: int,
        settings: Any,
        params: Tree | None = None,
    ) -> tuple[Any, jax.Array]:
        """Return the state after some steps, and the costs of all placements, `[steps, ..., S]`.

        Args:
          key: random key.
          inputs: the graph on a machine.
          cost: maps devices of ops, int32 `[P, N]`, to costs, float32 `[P]`.
          steps: number of steps.
          settings: settings of the policy.
          params: parameters to begin with; by default random ones.

        Raises:
          ValueError: `steps` is less than one.
        """
        if not steps >= 1:
            raise ValueError(f"steps is {steps}: expected 1 at least")
        to_init, to_run = jax.random.split(key)
        settings = self.settings_for(settings, steps)
        task = Task(inputs, cost)
        params = self.init(to_init, inputs, settings=settings) if params is None else params

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, metrics = self.step(state, key, task, settings=settings)
            return state, metrics["costs"]

        first = self.start(params, task, settings=settings)
        return lax.scan(step, first, jax.random.split(to_run, steps))

    def search(
        self,
        key: jax.Array,
        problem: Problem,
        params: Tree | None,
        *,
        inputs: Any,
        objective: str,
        evaluations: int,
        settings: Any,
    ) -> SearchResult:
        """Return the best placement that training draws, int32 `[N]`, devices of ops.

        Args:
          key: random key.
          problem: one problem.
          params: parameters to begin with; random ones if None, as published.
          inputs: the same problem as the policy reads it.
          objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
          evaluations: number of placements that may be costed.
          settings: settings of the policy.

        Raises:
          ValueError: the evaluations do not suffice for a step.
        """
        before = int(self.is_start_costed)
        each = self.step_evaluations(inputs, settings)
        steps = (evaluations - before) // each
        if not steps >= 1:
            raise ValueError(
                f"evaluations is {evaluations}: expected {before + each} at least, for one step"
            )
        cost = placement_cost(problem, objective)
        state, costs = self.run(key, inputs, cost, steps=steps, settings=settings, params=params)
        history = finite(costs).min(-1).ravel()
        evaluated = before + costs.shape[-1] * jnp.arange(1, len(history) + 1, dtype=jnp.int32)
        if self.is_start_costed:
            history = jnp.append(finite(state.first), history)
            evaluated = jnp.append(jnp.int32(1), evaluated)
        return SearchResult(state.device, state.cost, lax.cummin(history), evaluated)


def placement_cost(problem: Problem, objective: str) -> PlacementCost:
    """Return a function that maps devices of ops, int32 `[P, N]`, to costs, float32 `[P]`.

    Args:
      problem: one problem.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
    """
    cost = dispatch.population_cost(problem, objective)
    return lambda device: cost(jax.vmap(partial(dispatch.placement, problem))(device))


def finite(costs: jax.Array) -> jax.Array:
    """Return costs with infinity in place of all that are not finite."""
    return jnp.where(jnp.isfinite(costs), costs, jnp.inf)


def better(
    device: Int32[jax.Array, " N"],
    cost: Float32[jax.Array, ""],
    placed: Int32[jax.Array, "P N"],
    costs: Float32[jax.Array, " P"],
) -> tuple[jax.Array, jax.Array]:
    """Return the best of all placements and its cost; costs that are not finite are ignored.

    Args:
      device: int32 `[N]`, best placement before.
      cost: float32 `[]`, its cost.
      placed: int32 `[P, N]`, further placements.
      costs: float32 `[P]`, their costs.
    """
    costs = finite(costs)
    best = jnp.argmin(costs)
    is_better = costs[best] < cost
    return jnp.where(is_better, placed[best], device), jnp.where(is_better, costs[best], cost)


def in_units(costs: jax.Array, unit: jax.Array, *, infeasible_cost: float) -> jax.Array:
    """Return costs in units; those above `infeasible_cost`, or not finite, become it.

    So do all costs while the unit is not known, and not finite.
    """
    is_known = jnp.isfinite(unit)
    ratio = costs / jnp.where(is_known, jnp.maximum(unit, 1e-30), 1)
    ratio = jnp.where(is_known, ratio, infeasible_cost)
    return jnp.where(jnp.isfinite(ratio) & (ratio < infeasible_cost), ratio, infeasible_cost)
