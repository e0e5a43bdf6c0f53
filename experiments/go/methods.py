"""The searches of the tables."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from experiments.go.case import Case, move, row_of, values_of
from experiments.harness.command_line import UsageError
from gopt.cost.schedule import decoding, dispatch
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.search import annealing, brkga
from gopt.search.loop import LoopResult
from gopt.search.result import SearchResult
from gopt.systems import go, hdp, placeto, regal

Tree = Any
LEARNED = ("GO", "GO fine-tuned", "GO, in turn")  # methods that start with trained parameters
# Climbing accepts every step that is not worse.
CLIMBING = annealing.Settings(first_temperature=0.0, last_temperature=0.0)
# The best of temperatures from 0.03 % to 1 % on the training steps of the policy.
ANNEALING = annealing.Settings(first_temperature=0.0003, last_temperature=0.00002)


def random(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: go.Settings
) -> SearchResult:
    """Draw decisions, one value for each group of a random level, and keep the best."""
    cost, first, tasks = case.simulator.cost, case.first, settings.tasks

    def draw(key: jax.Array) -> go.OpDecisions:
        decision = case.start
        for k, task in enumerate(tasks):
            to_task = jax.random.split(key, len(tasks))[k]
            to_level, to_value = jax.random.split(to_task)
            level = jax.random.randint(to_level, (), 0, len(case.group[k]))
            group, rows = case.group[k][level], len(case.group[k][0])
            value = jax.random.randint(to_value, (rows,), 0, values_of(case, task))
            drawn = jnp.where(group < rows, value[group], getattr(decision, task))
            decision = decision._replace(**{task: drawn})
        placed = dispatch.legalize_placement(case.schedule, decision.placement)
        return decision._replace(placement=placed)

    def step(best: go.State, key: jax.Array) -> tuple[go.State, jax.Array]:
        decision = row_of(draw(key))
        best = go.keep_best(best, decision, cost(decision))
        return best, best.cost

    best, history = jax.lax.scan(step, first, jax.random.split(key, evaluations - 1))
    return _every(best, first, history, 1)


def stepwise(
    key: jax.Array,
    case: Case,
    params: Tree,
    *,
    evaluations: int,
    settings: go.Settings,
    cooling: annealing.Settings,
) -> SearchResult:
    """Run hill climbing or simulated annealing by `move`, one chain."""
    found = annealing.minimize(
        key,
        case.simulator.cost,
        case.start,
        evaluations=evaluations,
        settings=cooling,
        neighbour=lambda key, decision: move(key, case, decision, settings.tasks),
        initial=row_of(case.start),
    )
    return SearchResult(found.best, found.cost, found.history, found.evaluations)


def genetic(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: go.Settings
) -> SearchResult:
    """Run BRKGA with a key for each group of GO's finest level: it stays, or gets a new value."""
    tasks, places = settings.tasks, range(len(settings.tasks))
    groups = [case.group[k][-2] for k in places]
    rows = len(case.start.placement)

    def decide(keys: list[jax.Array]) -> go.OpDecisions:
        decision = case.start
        for task, group, key in zip(tasks, groups, keys, strict=True):
            choices = 1 + values_of(case, task)
            choice = jnp.minimum((key * choices).astype(jnp.int32), choices - 1)
            value, before = jnp.append(choice, 0)[group], getattr(decision, task)
            decided = jnp.where(value == 0, before, value - 1).astype(jnp.int32)
            decision = decision._replace(**{task: decided})
        placed = dispatch.legalize_placement(case.schedule, decision.placement)
        return decision._replace(placement=placed)

    found = brkga.minimize(
        key,
        lambda keys: case.simulator.cost(jax.vmap(decide)(keys)),
        [jax.ShapeDtypeStruct((rows,), jnp.float32) for _ in places],
        evaluations=evaluations - 1,  # the start counts as one evaluation
        initial=[jnp.zeros((1, rows)) for _ in places],
    )
    return _evolved(case, decide(found.best), found)


def rolled(
    key: jax.Array,
    case: Case,
    params: Tree,
    *,
    evaluations: int,
    settings: go.Settings,
    is_trained: bool,
) -> SearchResult:
    """Run GO with fixed parameters, or with parameters that are trained on the row meanwhile."""
    first, count = case.first, settings.evaluations_per_iteration
    row, steps = (case.inputs, first, case.simulator), (evaluations - 1) // count
    if is_trained:
        state, steps = go.start(params, settings=settings), steps // settings.iterations
        _, best, history = go.tune(key, state, *row, steps=steps, settings=settings)
    else:
        best, _, history = go.rollout(key, params, *row, iterations=steps, settings=settings)
    return _every(best, first, history, count)


def hierarchical(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: hdp.Settings
) -> SearchResult:
    """Run HDP, which ignores the start: its own best placement, even if the start is better."""
    drawn, cost = settings.groupings * settings.placements, _of_placements(case)
    steps = evaluations // drawn
    state, costs = hdp.run(key, case.reads["HDP"], cost, steps=steps, settings=settings)
    evaluated = drawn * jnp.arange(1, steps + 1, dtype=jnp.int32)
    return _from_nothing(case, state.device, state.cost, costs.min(1), evaluated)


def visiting(
    key: jax.Array, case: Case, params: Tree, *, evaluations: int, settings: placeto.Settings
) -> SearchResult:
    """Run Placeto, which starts from one device: its best placement, even if the start is better.

    It takes as many steps as the budget allows; its rates decay over them.

    Raises:
      ValueError: the budget does not suffice for one step.
    """
    reads, cost = case.reads["Placeto"], _of_placements(case)
    groups = len(reads.about)
    steps = (evaluations - 1) // (settings.episodes * groups)
    state, costs = placeto.run(key, reads, cost, steps=steps, settings=settings)
    every = jnp.concatenate([state.first[None], costs.min(2).ravel()])
    visits = jnp.arange(1 + steps * groups, dtype=jnp.int32)
    return _from_nothing(case, state.device, state.cost, every, 1 + settings.episodes * visits)


def proposed(key: jax.Array, case: Case, params: Tree, *, evaluations: int) -> SearchResult:
    """Run REGAL: BRKGA over the devices of single ops, from the proposals of its policy."""
    problem, action, settings = case.schedule, case.reads["REGAL"], regal.Settings()
    shapes = decoding.keys_shape(problem)

    def keys_of(device: jax.Array) -> Keys:
        rest = (jnp.zeros((len(device), *shape.shape)) for shape in shapes[1:])
        return Keys(device, *rest)

    def decide(keys: Keys) -> go.OpDecisions:
        placed = dispatch.legalize_placement(problem, decoding.devices_of(problem, keys))
        return case.start._replace(placement=placed)

    propose = regal.proposal(problem, action, settings)
    wanted = jax.nn.one_hot(case.start.placement, problem.num_devices)
    found = brkga.minimize(
        key,
        lambda device: case.simulator.cost(jax.vmap(decide)(keys_of(device))),
        shapes.device,
        evaluations=evaluations - 1,  # the start counts as one evaluation
        proposal=lambda u: propose(keys_of(u)).device,
        bias=regal.elite_bias(problem, action, settings).device,
        initial=wanted[None],
    )
    decision = decide(jax.tree.map(lambda x: x[0], keys_of(found.best[None])))
    return _evolved(case, decision, found)


def _evolved(case: Case, decision: go.OpDecisions, found: LoopResult) -> SearchResult:
    """Return the result of BRKGA, with the start counted as an evaluation."""
    history = jnp.concatenate([case.first.cost[None], found.history])
    return SearchResult(decision, found.cost, history, jnp.append(1, 1 + found.evaluations))


def _of_placements(case: Case) -> Callable[[jax.Array], jax.Array]:
    """Return the cost of placements `[P, N]`, infinite for placements that do not fit."""
    cost = case.simulator.cost

    def of_placements(device: jax.Array) -> jax.Array:
        same = jax.tree.map(lambda x: jnp.broadcast_to(x, device.shape), case.start)
        found = cost(same._replace(placement=device))
        return jnp.where(found < MAX_TICKS, found, jnp.inf)

    return of_placements


def _from_nothing(
    case: Case, device: jax.Array, cost: jax.Array, costs: jax.Array, evaluated: jax.Array
) -> SearchResult:
    """Return the result of a search that ignores the start, from `costs` in their order."""
    decision = case.start._replace(placement=device)
    # If no placement fits, the cost of the returned one takes one more evaluation.
    best = jax.lax.cond(
        jnp.isfinite(cost), lambda: cost, lambda: case.simulator.cost(row_of(decision))[0]
    )
    known = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
    return SearchResult(decision, best, jax.lax.cummin(known), evaluated)


def in_turn(
    key: jax.Array,
    case: Case,
    params: Tree,
    *,
    search: Callable[..., SearchResult],
    evaluations: int,
    settings: go.Settings,
) -> SearchResult:
    """Optimise one task after another by a search, each with an equal part of the evaluations."""
    tasks = settings.tasks
    each, before = 1 + (evaluations - 1) // len(tasks), jnp.int32(0)
    histories, evaluated = [], []
    for k, to_search in enumerate(jax.random.split(key, len(tasks))):
        mine = case._replace(group=case.group[k : k + 1], count=case.count[k : k + 1])
        only = dataclasses.replace(settings, tasks=tasks[k : k + 1])
        found = search(to_search, mine, params, evaluations=each, settings=only)
        case = case._replace(start=found.best)
        histories.append(found.history)
        evaluated.append(before + found.evaluations)
        before = evaluated[-1][-1] - 1  # the next search starts from a known cost
    return SearchResult(
        found.best, found.cost, jnp.concatenate(histories), jnp.concatenate(evaluated)
    )


def _every(best: go.State, first: go.State, history: jax.Array, count: int) -> SearchResult:
    """Return the result of a search whose history has an entry every `count` evaluations."""
    evaluations = 1 + count * jnp.arange(len(history) + 1, dtype=jnp.int32)
    return SearchResult(*best, jnp.concatenate([first.cost[None], history]), evaluations)


def searches(
    evaluations: int, settings: go.Settings
) -> dict[str, Callable[[jax.Array, Case, Tree], SearchResult]]:
    """Return the searches by name; each maps a random key, a row and parameters to a result.

    `evaluations` bounds the decisions that each evaluates, the start included. Other systems are
    included if only placement is decided. If several tasks are decided, some searches also do one
    task after another.

    Raises:
      ValueError: the budget does not suffice for one training step.
    """
    least = 1 + settings.evaluations_per_iteration * settings.iterations
    if evaluations < least:
        raise UsageError(f"evaluations is {evaluations}: expected {least} at least")
    found: dict[str, Callable[..., SearchResult]] = {
        "random search": random,
        "local search": partial(stepwise, cooling=CLIMBING),
        "annealing": partial(stepwise, cooling=ANNEALING),
        "BRKGA": genetic,
        **dict.fromkeys(("GO untrained", "GO"), partial(rolled, is_trained=False)),
        **dict.fromkeys(("GO-one", "GO fine-tuned"), partial(rolled, is_trained=True)),
    }
    if len(settings.tasks) > 1:
        for name in ("annealing", "GO"):
            found[f"{name}, in turn"] = partial(in_turn, search=found[name])
    found = {name: partial(search, settings=settings) for name, search in found.items()}
    if settings.tasks == ("placement",):
        found |= {
            "REGAL": proposed,
            "HDP": partial(hierarchical, settings=hdp.Settings()),
            "HDP, published": partial(hierarchical, settings=hdp.PUBLISHED),
            "Placeto": partial(visiting, settings=placeto.Settings()),
        }
    return {name: partial(search, evaluations=evaluations) for name, search in found.items()}
