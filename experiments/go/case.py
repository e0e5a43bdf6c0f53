"""Prepare a row of a table for searches, and draw random moves in it."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.joint.problem import JointProblem, schedule_of
from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph
from gopt.heuristics.schedule.readiness import followed_ops
from gopt.systems import go, hdp, placeto, regal

OBJECTIVE = "capped_makespan"
REGAL_DEVICES = 2  # devices that its policy is trained for; sets their positions in a plane


class Case(NamedTuple):
    """A row of a table on its machine, as searches take it. It has `K` tasks.

    Attributes:
      problem: problem.
      inputs: inputs of GO.
      order: float32 [N], priorities to which shifts are added; None for first come, first served.
      start: initial decision.
      group: for each task, int32 [L + 1, N], group of each op at each level of GO, and of each op
        alone; input ops are marked as in `Inputs`.
      count: for each task, int32 [L + 1], number of groups.
      reads: inputs of HDP and Placeto, and the action of REGAL's policy, by name; empty if other
        tasks than placement are decided.
    """

    problem: Problem | JointProblem
    inputs: go.Inputs
    order: Any
    start: go.OpDecisions
    group: Any
    count: Any
    reads: dict[str, Any]

    @property
    def schedule(self) -> Problem:
        """Problem without fusion."""
        return schedule_of(self.problem)

    @property
    def simulator(self) -> go.Simulator:
        """Simulator of decisions."""
        return go.simulator_of(self.problem, OBJECTIVE, self.order)

    @property
    def first(self) -> go.State:
        """Initial decision and its cost."""
        return go.State(self.start, self.simulator.cost(row_of(self.start))[0])


def row_of(decision: go.OpDecisions) -> go.OpDecisions:
    """Return one decision as a population."""
    return jax.tree.map(lambda x: x[None], decision)


def case(
    graph: Graph,
    problem: Problem | JointProblem,
    start: go.OpDecisions,
    order: Any,
    policy: go.Settings,
) -> Case:
    """Return a row of a table, ready for every search; on the host."""
    schedule, inputs = schedule_of(problem), go.inputs(graph, problem, settings=policy)
    none = schedule.shape.ops
    alone = np.full((1, none), none)
    leader = followed_ops(schedule)
    alone[0, : len(leader)] = leader
    every = np.concatenate([inputs.group, alone])
    about = (np.asarray(go.ops_of(task, inputs)) for task in policy.tasks)
    grouped = [_numbered(every, is_about) for is_about in about]
    reads = _read(graph, schedule) if policy.tasks == ("placement",) else {}
    groups, counts = zip(*grouped, strict=True)
    values = (problem, inputs, order, start, groups, counts, reads)
    return Case(*jax.tree.map(jnp.asarray, values))


def _read(graph: Graph, problem: Problem) -> dict[str, Any]:
    params, settings = regal.load(objective=OBJECTIVE, devices=REGAL_DEVICES)
    inputs = regal.inputs(graph, problem, settings=settings, objective=OBJECTIVE)
    return {
        "HDP": hdp.inputs(graph, problem, settings=hdp.Settings()),
        "Placeto": placeto.inputs(graph, problem, settings=placeto.Settings()),
        "REGAL": jax.jit(partial(regal.act, None, settings=settings))(params, inputs),
    }


def _numbered(groups: np.ndarray, is_about: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return groups of some ops, renumbered at each level, and the number of groups."""
    of_ops = np.full(groups.shape, groups.shape[1], np.int32)
    count = []
    for level, group in enumerate(groups):
        names, of_ops[level, is_about] = np.unique(group[is_about], return_inverse=True)
        count.append(len(names))
    return of_ops, np.array(count, np.int32)


def values_of(case: Case, task: str) -> int:
    """Return the number of values that an op can take."""
    return go.task_of(task, case.inputs, case.start).may.shape[1]


def move(
    key: jax.Array, case: Case, decision: go.OpDecisions, tasks: tuple[str, ...]
) -> go.OpDecisions:
    """Return a decision with another value for one group, of a random task and level, `[N]`.

    The new value differs from the value of the group's first op.
    """
    to_task, *keys = jax.random.split(key, 1 + len(tasks))
    chosen = jax.random.randint(to_task, (), 0, len(tasks))
    for k, (task, to_move) in enumerate(zip(tasks, keys, strict=True)):
        to_level, to_group, to_value = jax.random.split(to_move, 3)
        group, count, values = case.group[k], case.count[k], values_of(case, task)
        level = jax.random.randint(to_level, (), 0, len(group))
        members = group[level] == jax.random.randint(to_group, (), 0, count[level])
        value = getattr(decision, task)
        away = jax.random.randint(to_value, (), 1, max(values, 2))
        other = (value[jnp.argmax(members)] + away) % values
        moved = jnp.where(members & (chosen == k), other, value).astype(jnp.int32)
        decision = decision._replace(**{task: moved})
    return decision
