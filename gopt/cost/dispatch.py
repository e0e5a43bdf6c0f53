"""What a schedule costs where each device starts the best op at hand as soon as it is free.

In `gopt.cost.execution` a candidate says in which order everything is issued. Here time does: of
all ready items the one whose time comes first goes next. The time of a transfer is when its tensor
exists, that of an op when its device is free and its inputs have arrived. Of several ops on one
device that may start at the same time the one with the smallest rank does; so a device keeps a
priority queue. Keys of transfers mean nothing.

All else is as in `execution`: how long items take, what they wait for and occupy, and that memory
is accounted along the order of issue. So a link serves transfers in the order in which their
tensors exist, and a synchronous transfer, once its tensor exists, keeps both of its devices from
starting anything else, even while it waits for one of them.

At the same time inputs are issued first, then their transfers, both by index; then other transfers,
by the device that they leave and by index; then ops, by device.

A population is costed as in `execution`:

    cost = jax.jit(jax.vmap(dispatch.evaluate, (None, 0)))
    found = execution.objective(problem, cost(problem, keys), "makespan")  # [P]
"""

import jax
import jax.numpy as jnp

from gopt.cost import execution
from gopt.cost.cells import unit
from gopt.cost.events import Table, dispatch, tabulate
from gopt.cost.execution import Cost, Decision, Keys, Schedule, check_keys, devices_of, peak_of
from gopt.cost.ranking import rank_by_key
from gopt.problem import Problem


def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Returns the schedule of one decision, to look at; decode it with `execution.decode`.

    Only the ranks of ops matter.
    """
    return _simulate(*jax.tree.map(jnp.asarray, (problem, decision)))


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Returns the cost of one candidate: the same as `simulate(problem, decode(problem, keys))`.

    Compose with `jax.vmap` for a population, and once more for a batch of graphs. Candidates are
    costed one at a time, on GPUs, too, where that is slow; on CPUs it is fast on up to eight
    devices. Under a `jax.shard_map` pass `check_vma=False`, see `execution.evaluate`.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    problem, keys = jax.tree.map(jnp.asarray, (problem, keys))
    return _evaluate(problem, tabulate(problem), keys)


@jax.custom_batching.sequential_vmap
@unit
def _evaluate(problem: Problem, table: Table, keys: Keys) -> Cost:
    device = devices_of(problem, keys)
    ops = jnp.arange(problem.shape.ops, dtype=jnp.int32)
    ranks = unit(rank_by_key)(keys.priority, ops, problem.num_ops)
    found = unit(dispatch)(problem, device, *ranks, table)
    return Cost(found.makespan, peak_of(problem, device, found.position, found.count))


@jax.custom_batching.sequential_vmap
def _simulate(problem: Problem, decision: Decision) -> Schedule:
    device, rank = decision
    n = problem.shape.ops
    by_rank = jnp.argsort(rank[:n]).astype(jnp.int32)
    ops = jnp.zeros_like(by_rank).at[by_rank].set(jnp.arange(n, dtype=jnp.int32))
    position = dispatch(problem, device, by_rank, ops, tabulate(problem)).position
    # The same order of issue, decided beforehand; items that there are not come last.
    order = jnp.argsort(jnp.where(position > 0, position, position.size + 1))
    rank = jnp.zeros_like(rank).at[order].set(jnp.arange(rank.size, dtype=jnp.int32))
    return execution.simulate(problem, Decision(device, rank))
