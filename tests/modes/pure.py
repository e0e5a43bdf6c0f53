"""Pure functions of gopt on tiny arrays, for tests that trace or run them in each mode of JAX."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gopt
from gopt.cost.fusion.cost import flipped_costs, fusion_cost, kernels_of
from gopt.cost.fusion.levels import fuse_by_level
from gopt.cost.joint.cost import contract_kernels
from gopt.cost.recompute import cost as recompute_cost
from gopt.cost.recompute.runs import Choices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.gpu import population as lanes
from gopt.cost.schedule.list_decoder import decode_by_list
from gopt.heuristics.schedule.evolve import evolve
from gopt.learning import losses
from gopt.scheduling import best
from gopt.search import annealing, brkga, gibbs, guided, proposals, random
from gopt.search.parallel import shard_candidates
from tests.modes.graphs import (
    candidate,
    fusion_problem,
    joint_problem,
    population,
    problem,
    recompute_problem,
)
from tests.search.watched import TEMPLATE, cost

ROWS = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
SMALL = brkga.Settings(population=10, elites=2, mutants=2)
ZEROS, NODES = np.zeros(6, np.int32), np.arange(6, dtype=np.int32)
BITS = np.arange(24) % 2 == 0


def key() -> jax.Array:
    return jax.random.key(0)


def schedules() -> Any:
    one, keys = problem(), candidate()
    decision = gopt.decode(one, keys)
    return gopt.simulate(one, decision), jax.vmap(gopt.evaluate, (None, 0))(one, population())


def objectives() -> Any:
    return [gopt.population_cost(problem(), name)(population()) for name in gopt.OBJECTIVES]


def on_gpus() -> Any:
    """Return the costs by the kernel for GPUs, emulated."""
    batch = jax.tree.map(lambda leaf: leaf[None], (problem(), population()))
    return lanes.costs(*batch, interpret=True)


def dispatched() -> Any:
    one, keys = problem(), candidate()
    return (
        dispatch.simulate(one, dispatch.decode(one, keys)),
        dispatch.timed(one, keys),
        dispatch.evaluate(one, keys._replace(priority=None)),
        dispatch.population_cost(one, "capped_makespan")(population()),
    )


def built() -> Any:
    keys = candidate()
    return decode_by_list(problem(), keys), decode_by_list(problem(), keys._replace(device=None))


def fusions() -> Any:
    one, bits = fusion_problem(), BITS[: len(fusion_problem().compute)]
    many = jax.vmap(fusion_cost, (None, 0))(one, np.stack([bits, ~bits]))
    return kernels_of(one, bits), many, flipped_costs(one, bits), fuse_by_level(one, 3 * bits)


def runs() -> Any:
    one = recompute_problem()
    splits = np.arange(one.num_rows, dtype=np.int32)[:, None] % 3
    choices = Choices(candidate().priority, splits)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), choices)
    costs = jax.vmap(recompute_cost.evaluate, (None, 0, None))(one, many, 9)
    return costs, recompute_cost.sequence(one, choices)


def kernels() -> Any:
    found = contract_kernels(joint_problem(), NODES.repeat(4) % 4)
    return found._replace(unit=None, tick=None)  # float64 on the host


def all_losses() -> Any:
    one, two, three = ROWS[:3]
    action = np.arange(18).reshape(6, 3) % 4
    return [
        jax.value_and_grad(losses.reinforce)(one, two, three),
        jax.value_and_grad(losses.baseline_error, 1)(one, two),
        jax.value_and_grad(losses.ppo)(one, two, three),
        jax.grad(lambda x: losses.categorical_log_prob(x, action).sum())(ROWS),
        jax.grad(lambda x: losses.categorical_entropy(x).sum())(ROWS),
        losses.leave_one_out(one),
        losses.log_ratio(one, two),
        losses.generalized_advantages(one, two, three),
    ]


def of_decisions(decisions: jax.Array) -> jax.Array:
    return jnp.sum((decisions - NODES[None] % 2) ** 2, -1).astype(jnp.float32)


def brkga_of_a_problem() -> Any:
    how: dict[str, Any] = {"settings": SMALL, "initial": population(), "bias": 0.6}
    return evolve(key(), problem(), objective="capped_makespan", evaluations=41, **how)


@cache
def starts() -> best.Starts:
    """Return first candidates, which heuristics make on the host; call it first."""
    return jax.device_get(best.starts(problem(), "peak_memory"))


PURE: dict[str, Callable[[], Any]] = {
    "schedules": schedules,
    "objectives": objectives,
    "GPU kernel": on_gpus,
    "dispatch": dispatched,
    "list decoder": built,
    "fusions": fusions,
    "kernels": kernels,
    "runs": runs,
    "losses": all_losses,
    "brkga": lambda: brkga.minimize(key(), cost, TEMPLATE, evaluations=45, settings=SMALL),
    "brkga of a problem": brkga_of_a_problem,
    "annealing": lambda: annealing.minimize(key(), cost, TEMPLATE, evaluations=30),
    "random": lambda: random.minimize(key(), cost, TEMPLATE, evaluations=30, block=8),
    "guided": lambda: guided.minimize(
        key(), of_decisions, ZEROS, lambda _: jnp.ones(6, jnp.float32), evaluations=60
    ),
    "gibbs": lambda: gibbs.minimize(
        key(), of_decisions, ZEROS, NODES, 6, evaluations=30, temperature=0.5
    ),
    "quantiles": lambda: proposals.from_quantiles(
        proposals.beta_quantiles([0.3, 0.6], 0.1), NODES[:3] % 2, ROWS[0, :, :3] % 1
    ),
    "sharded": lambda: shard_candidates(gopt.population_cost(problem(), "makespan"))(population()),
    "best": lambda: best.improve(
        key(), problem(), starts(), objective="peak_memory", evaluations=60
    ),
}
