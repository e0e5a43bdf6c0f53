"""The strongest search for each objective that gopt has without training.

It starts from all heuristics and the program's own order, and its result is never worse than any
start that the budget allows. Where memory counts, on several devices, it is the genetic algorithm,
with proposals along the guide of REGAL's policies: for the peak memory the order that peaks least
on one device, parted along the spectral places, for the makespan under capacities the fastest list
schedule. Else it is annealing: first over the keys of the decoder of
`gopt.cost.schedule.list_decoder`, which leaves devices to a greedy choice, and in which a step
moves one op in the order, pins it to a device, or unpins it; then over plain keys, in which
transfers have priorities of their own.

Which search serves which objective was chosen by measurement: the annealing on random graphs made
for it, the proposals on the training and validation graphs of `experiments.regal`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray

from gopt.cost.schedule import objectives
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.list_decoder import decode_by_list
from gopt.cost.schedule.problem import Problem
from gopt.heuristics import op_coordinates
from gopt.heuristics.schedule.baselines import heuristic_keys, tried
from gopt.heuristics.schedule.orders.memory_orders import relative_positions
from gopt.search import annealing
from gopt.search.loop import Loop, Run, whole
from gopt.search.result import SearchResult
from gopt.systems import regal

PLAIN = 0.2  # share of the budget for plain keys on several devices
UNPINNED = 0.3  # share of changes of a device that leave it to the greedy choice


class Starts(NamedTuple):
    """Starting points of the search of one problem.

    Attributes:
      keys: keys of all heuristics, then of the program's own order on the first device, `[S, ...]`.
      action: action of REGAL if the genetic algorithm searches, else None.
    """

    keys: Keys
    action: regal.Action | None


def search(
    key: PRNGKeyArray,
    problem: Problem,
    *,
    objective: str,
    evaluations: int,
    initial: Starts | None = None,
    settings: regal.Settings | None = None,
    run: Run | None = None,
) -> SearchResult:
    """Return the best schedule found for one problem with exactly `evaluations` evaluations.

    The best candidate is keys, as `gopt.cost.schedule.decoding` decodes them.

    Candidates of the heuristics count, and so do the orders that proposals choose from. If the
    budget is smaller than their number, the search still evaluates one candidate.

    Args:
      key: random key.
      problem: one problem, on the host.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: budget.
      initial: starting points; by default `starts`.
      settings: settings of the policy whose action is given, if one is.
      run: how loops run, see `gopt.search.loop`; by default all in one jitted call.

    Raises:
      ValueError: the budget is less than one, or the objective is unknown.
    """
    initial = initial or starts(problem, objective)
    improved = _improve if run is None else partial(improve, run=run)
    return improved(
        key, problem, initial, objective=objective, evaluations=evaluations, settings=settings
    )


def starts(problem: Problem, objective: str) -> Starts:
    """Return what the search of one problem starts from; on the host."""
    return Starts(heuristic_keys(problem), proposed(problem, objective))


def improve(
    key: jax.Array,
    problem: Problem,
    initial: Starts,
    *,
    objective: str,
    evaluations: int,
    settings: regal.Settings | None = None,
    run: Run = whole,
) -> SearchResult:
    """Return the best schedule found, the given ones included; the rest is as in `search`.

    Composes with `jax.jit` and `jax.vmap`.
    """
    if not evaluations >= 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    before = tried(problem)
    before += 0 if initial.action is None else regal.schedules_compared(objective)
    evaluations = max(1, evaluations - before)
    problem = jax.tree.map(jnp.asarray, problem)

    if initial.action is None:
        found = _anneal(run, key, problem, initial.keys, objective, evaluations)
        return found._replace(evaluations=before + found.evaluations)
    result = regal.search_from(
        key,
        problem,
        jax.tree.map(jnp.asarray, initial.action),
        objective=objective,
        evaluations=evaluations,
        settings=settings or regal.Settings(),
        initial=jax.tree.map(lambda leaf: leaf[:evaluations], initial.keys),
        run=run,
    )
    return SearchResult(result.best, result.cost, result.history, before + result.evaluations)


_improve = jax.jit(improve, static_argnames=("objective", "evaluations", "settings"))


def proposed(problem: Problem, objective: str) -> regal.Action | None:
    """Return REGAL's initial action for an objective, computed on the host.

    The action resembles the one of an untrained REGAL policy, along the guide of the objective, but
    without a random network.
    """
    if objective == "makespan" or problem.num_devices == 1:
        return None
    n, t, e = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    size, producer = np.asarray(problem.size[:t], np.float64), problem.producer[:t]
    tensor, reader = problem.tensor[:e], problem.consumer[:e]
    made = np.bincount(producer, size, minlength=n)
    read = np.bincount(reader, size[tensor], minlength=n)
    order, side = regal.guide(problem, objective=objective)
    if side is None:
        side = op_coordinates(problem, 2).T
    settings = regal.Settings()
    found = np.zeros((problem.shape.ops, len(regal.PLACES)), np.float32)
    share = np.zeros(
        problem.shape.ops, np.float32
    )  # with padding: one program for all graphs of a bucket
    share[:n] = np.maximum(read, made) / max(1, size.sum())
    found[:n, :2] = settings.lean * side[:n]
    turn = relative_positions(problem, order)[:n]
    runs = ~np.asarray(problem.is_input[:n])
    late = turn - (turn[runs].mean() if runs.any() else 0)
    found[:n, regal.PLACES.index("priority")] = settings.follow * late + 0.5
    for place in ("device_deviation", "priority_deviation"):
        found[:, regal.PLACES.index(place)] = getattr(settings, place)
    led = regal.loosen_heavy(jnp.asarray(found), jnp.asarray(share), settings)
    action = regal.levels(led, devices=problem.num_devices, settings=settings)
    return jax.tree.map(np.asarray, action)


def _anneal(
    run: Run, key: jax.Array, problem: Problem, initial: Keys, objective: str, evaluations: int
) -> SearchResult:
    to_build, to_plain = jax.random.split(key)
    origins = _origins(initial)
    least = len(origins.priority) + len(initial.priority) + 1
    history: list[jax.Array] = []
    spent: list[jax.Array] = []
    budget = 0
    anneal = partial(run, _annealing, objective=objective)
    # On one device there is nothing to leave to a greedy choice, and plain keys are enough.
    if problem.num_devices > 1 and evaluations >= least:
        budget = len(origins.priority) + round((1 - PLAIN) * (evaluations - least))
        built = anneal(to_build, problem, origins, evaluations=budget, is_built=True)
        found, _ = _decode_by_list(problem, built.best)
        initial = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), initial, found)
        history, spent = [built.history], [built.evaluations]
    initial = jax.tree.map(lambda leaf: leaf[: evaluations - budget], initial)
    last = anneal(to_plain, problem, initial, evaluations=evaluations - budget, is_built=False)
    used = spent[0][-1] if spent else 0
    return SearchResult(
        last.best,
        last.cost,
        lax.cummin(jnp.concatenate([*history, last.history])),
        jnp.concatenate([*spent, used + last.evaluations]),
    )


def _annealing(
    key: jax.Array,
    problem: Problem,
    initial: Keys,
    *,
    objective: str,
    evaluations: int,
    is_built: bool,
) -> Loop:
    """Return annealing over plain keys, or over keys to build from, as a loop."""
    cost = (_built_cost if is_built else objectives.population_cost)(problem, objective)
    return annealing.loop(
        key,
        cost,
        jax.tree.map(lambda leaf: leaf[0], initial),
        evaluations=evaluations,
        settings=None,
        neighbour=partial(neighbour, problem),
        initial=initial,
    )


_decode_by_list = jax.jit(decode_by_list)


def _built_cost(problem: Problem, objective: str) -> annealing.KeysCost:
    """Return the cost of the schedules that are built from keys `[P, ...]`."""
    plain_cost = objectives.population_cost(problem, objective)

    def cost(keys: Keys) -> jax.Array:
        found, makespan = jax.vmap(decode_by_list, (None, 0))(problem, keys)
        return makespan.astype(jnp.float32) if objective == "makespan" else plain_cost(found)

    return cost


def _origins(initial: Keys) -> Keys:
    """Return keys to build from: of the given candidates, with their devices pinned and free."""
    device = jnp.concatenate([initial.device, jnp.zeros_like(initial.device)])
    return Keys(device, jnp.concatenate([initial.priority, initial.priority]), None)


def neighbour(problem: Problem, key: jax.Array, keys: Keys) -> Keys:
    """Return keys with one op moved in the order or to a device, or one transfer moved.

    Only the keys that there are change. Plain keys have transfers; keys to build from have not,
    and their ops may also be unpinned.
    """
    d = problem.num_devices
    is_plain = keys.transfer is not None
    to_kind, to_op, to_scale, to_step, to_device, to_pin = jax.random.split(key, 6)
    op = jax.random.randint(to_op, (), 0, problem.num_ops, jnp.int32)
    # From one place in the order to anywhere.
    scale = jnp.float32(problem.num_ops) ** -jax.random.uniform(to_scale, dtype=jnp.float32)
    step = scale * jax.random.normal(to_step, dtype=jnp.float32)
    priority = keys.priority.at[op].set(annealing.reflect(keys.priority[op] + step))
    moved = [keys._replace(priority=priority)]
    if d > 1:
        device = jax.random.randint(to_device, (), 0, d, jnp.int32)
        is_pinned = is_plain | (jax.random.uniform(to_pin, dtype=jnp.float32) >= UNPINNED)
        row = jnp.where(is_pinned, jax.nn.one_hot(device, d, dtype=jnp.float32), 0)
        moved.append(keys._replace(device=keys.device.at[op].set(row)))
    if d > 1 and is_plain:
        # A transfer that there is, most likely: to where one of the readers of its tensor runs.
        use = jax.random.randint(to_op, (), 0, jnp.maximum(problem.num_uses, 1), jnp.int32)
        there = problem.tensor[use], jnp.argmax(keys.device[problem.consumer[use]])
        transfer = keys.transfer.at[there].set(annealing.reflect(keys.transfer[there] + step))
        moved.append(keys._replace(transfer=transfer))
    kind = jax.random.randint(to_kind, (), 0, len(moved), jnp.int32)
    return jax.tree.map(lambda *leaves: lax.select_n(kind, *leaves), *moved)
