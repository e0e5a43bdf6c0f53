"""The searches that place the rows of the table, all over the same groups of ops."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gopt.classical.readiness import leaders
from gopt.cost import dispatch
from gopt.graph import Graph
from gopt.problem import Problem
from gopt.search import local
from gopt.systems import go

Tree = Any
OBJECTIVE = "capped_makespan"
NAMES = (
    *("random search", "local search", "annealing"),
    *("GO untrained", "GO", "GO-one", "GO fine-tuned"),
)
FROM_SCRATCH = ("GO untrained", "GO-one")  # their parameters are random at first
CLIMBING = local.Settings(hot=0.0, cold=0.0)  # takes every step that is no worse
# Of temperatures from 0.03 % to 1 %, the one that did best on steps that the policy is trained on.
ANNEALING = local.Settings(hot=0.0003, cold=0.00002)


class Case(NamedTuple):
    """A row of the table on its machine, as searches take it."""

    problem: Problem
    inputs: go.Inputs
    start: Any  # int32 [N], the placement to begin with
    group: Any  # int32 [L + 1, N], of each op at each level of GO, and alone; inputs as in `Inputs`
    count: Any  # int32 [L + 1], groups of each


class Found(NamedTuple):
    """What a search returns."""

    device: Any  # int32 [N]
    cost: Any  # float32 [], ticks
    history: Any  # float32 [K], the lowest cost so far, that of the start first
    evaluations: Any  # int32 [K], until then


def case(graph: Graph, problem: Problem, start: Any, policy: go.Settings) -> Case:
    """Returns a row of the table, ready for every search; on the host."""
    inputs = go.read(graph, problem, policy)
    single = np.unique(leaders(problem), return_inverse=True)[1]
    rows = np.full(problem.shape.ops, inputs.group.max(initial=0) + len(single) + 1, np.int32)
    rows[: len(single)] = single
    group = np.concatenate([inputs.group, rows[None]])
    count = np.append(inputs.count, single.max() + 1).astype(np.int32)
    return Case(*jax.tree.map(jnp.asarray, (problem, inputs, start, group, count)))


def move(key: jax.Array, case: Case, device: jax.Array) -> jax.Array:
    """Returns a placement with one group, of a random level, on another device, int32 `[N]`.

    "Another" is as seen from the first op of the group.
    """
    to_level, to_group, to_device = jax.random.split(key, 3)
    devices = case.problem.num_devices
    level = jax.random.randint(to_level, (), 0, len(case.group))
    members = case.group[level] == jax.random.randint(to_group, (), 0, case.count[level])
    now = device[jnp.argmax(members)]
    away = jax.random.randint(to_device, (), 1, max(devices, 2))
    return jnp.where(members, (now + away) % devices, device).astype(jnp.int32)


def random(key: jax.Array, case: Case, params: Tree, *, evaluations: int) -> Found:
    """Draws placements, each group of a random level on a random device, and keeps the best."""
    cost, inputs = go.placement_cost(case.problem, OBJECTIVE), case.inputs
    settle = partial(dispatch.settled, case.problem)
    first = go.State(case.start, cost(case.start[None])[0])

    def step(best: go.State, key: jax.Array) -> tuple[go.State, jax.Array]:
        to_level, to_device = jax.random.split(key)
        group = inputs.group[jax.random.randint(to_level, (), 0, len(inputs.group))]
        rows, devices = len(case.start), case.problem.num_devices
        device = settle(jax.random.randint(to_device, (rows,), 0, devices)[group])
        found = cost(device[None])[0]
        better = found < best.cost
        best = go.State(jnp.where(better, device, best.device), jnp.minimum(found, best.cost))
        return best, best.cost

    best, history = jax.lax.scan(step, first, jax.random.split(key, evaluations - 1))
    return _every(best, first, history, 1)


def stepwise(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: local.Settings
) -> Found:
    """Hill climbing or simulated annealing by `move`, one chain."""
    cost = go.placement_cost(case.problem, OBJECTIVE)
    found = local.minimize(
        key,
        cost,
        case.start,
        evaluations=evaluations,
        settings=settings,
        neighbour=lambda key, device: move(key, case, device),
        given=case.start[None],
    )
    return Found(found.keys, found.cost, found.history, found.evaluations)


def rolled(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: go.Settings
) -> Found:
    """GO with the parameters as they are."""
    cost = go.placement_cost(case.problem, OBJECTIVE)
    first = go.begin(case.problem, case.start, cost)
    best, _, history = go.rollout(
        key,
        params,
        case.inputs,
        first,
        cost,
        iterations=(evaluations - 1) // settings.drawn,
        settings=settings,
    )
    return _every(best, first, history, settings.drawn)


def tuned(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: go.Settings
) -> Found:
    """GO whose parameters are trained on the row meanwhile."""
    cost = go.placement_cost(case.problem, OBJECTIVE)
    state = go.TrainState(params, go.optimizer(settings).init(params))
    first = go.begin(case.problem, case.start, cost)
    _, best, history = go.tune(
        key,
        state,
        case.inputs,
        first,
        cost,
        steps=(evaluations - 1) // (settings.drawn * settings.iterations),
        settings=settings,
    )
    return _every(best, first, history, settings.drawn)


def _every(best: go.State, first: go.State, history: jax.Array, count: int) -> Found:
    """Returns what was found where each entry of the history is `count` evaluations later."""
    evaluations = 1 + count * jnp.arange(len(history) + 1, dtype=jnp.int32)
    return Found(*best, jnp.concatenate([first.cost[None], history]), evaluations)


def searches(
    evaluations: int, settings: go.Settings
) -> dict[str, Callable[[jax.Array, Case, Tree], Found]]:
    """Returns the searches by name; each maps a random key, a row and parameters to a result.

    None evaluates more placements than `evaluations`, that of the start included.

    Raises:
      ValueError: that does not suffice for one step of training.
    """
    least = 1 + settings.drawn * settings.iterations
    if evaluations < least:
        raise ValueError(f"evaluations is {evaluations}: expected {least} at least")
    climb = partial(stepwise, evaluations=evaluations, settings=CLIMBING)
    anneal = partial(stepwise, evaluations=evaluations, settings=ANNEALING)
    roll = partial(rolled, evaluations=evaluations, settings=settings)
    tune = partial(tuned, evaluations=evaluations, settings=settings)
    chance = partial(random, evaluations=evaluations)
    return dict(zip(NAMES, (chance, climb, anneal, roll, roll, tune, tune), strict=True))
