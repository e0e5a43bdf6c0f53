"""Costs of populations on GPUs.

On a GPU, XLA launches kernels at each step of a data-dependent loop. Only the issue of items needs
such a loop, and it runs in one kernel, `gopt.cost.schedule.gpu.kernel`. Ranks and durations before
it, and memory after it, are left to XLA.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.decoding import Cost, Keys, decode
from gopt.cost.schedule.engine.memory import memory_changes
from gopt.cost.schedule.engine.ranking import key_bits
from gopt.cost.schedule.gpu.kernel import COLUMNS, SEEN, Lanes, Shared, device_bits, issue, queue
from gopt.cost.schedule.problem import Problem

# Words (int32) of state of the candidates that are issued together: 2 GiB. Computing ranks before
# and memory after takes a few times as much.
_BLOCK = 2**29


def costs(problem: Problem, keys: Keys, *, interpret: bool = False) -> Cost:
    """Return the costs of populations of a batch of graphs.

    Costs equal `gopt.cost.schedule.execution.evaluate` bit for bit. Large populations are
    evaluated in blocks, one after another. So only the keys' memory grows with the population.

    Args:
      problem: problems of one shape, `[G, ...]`.
      keys: populations, `[G, P, ...]`.
      interpret: whether to emulate the kernel, on any device, instead of compiling it.

    Returns:
      Makespans, int32 `[G, P]`, ticks, and peaks, int32 `[G, P, D]`, units.
    """
    (n, t, _), d = problem.shape, problem.num_devices
    graphs, population = keys.priority.shape[:2]
    if not graphs * population:
        none = jnp.zeros((graphs, population, d), jnp.int32)
        return Cost(none[..., 0], none)
    words = (1 + COLUMNS) * (n + t * d) + d + d * d
    blocks = -(-population // max(1, _BLOCK // (graphs * words)))
    block = partial(_block, problem, interpret=interpret)
    if blocks == 1:
        return block(keys)

    rows = -(-population // blocks)
    missing = blocks * rows - population  # filled with copies of the last candidate

    def split(leaf: jax.Array) -> jax.Array:
        leaf = jnp.concatenate([leaf, jnp.repeat(leaf[:, -1:], missing, 1)], 1)
        return jnp.moveaxis(leaf.reshape(graphs, blocks, rows, *leaf.shape[2:]), 1, 0)

    def join(leaf: jax.Array) -> jax.Array:
        leaf = jnp.moveaxis(leaf, 0, 1).reshape(graphs, blocks * rows, *leaf.shape[3:])
        return leaf[:, :population]

    return jax.tree.map(join, lax.map(block, jax.tree.map(split, keys)))


def _block(problem: Problem, keys: Keys, *, interpret: bool) -> Cost:
    (n, t, _), d = problem.shape, problem.num_devices
    batch = keys.priority.shape[:2]
    device, lanes = jax.vmap(jax.vmap(_lane, (None, 0)))(problem, keys)
    lanes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), lanes)
    makespan, records = issue(jax.vmap(_shared)(problem), lanes, n, d, interpret=interpret)
    # Copy the column: several passes read it, and without a copy each would read all columns.
    position = lax.optimization_barrier(records.reshape(*batch, n + t * d, COLUMNS)[..., SEEN])
    peak = jax.vmap(jax.vmap(_peak, (None, 0, 0)))(problem, device, position)
    return Cost(makespan.reshape(batch), peak)


def _shared(problem: Problem) -> Shared:
    return Shared(
        consumer=problem.consumer,
        tensor=problem.tensor,
        bounds=jnp.concatenate([problem.first_use[problem.first_tensor], problem.first_use]),
        channel=problem.channel.ravel(),
        synchronous=problem.synchronous.astype(jnp.int32),
    )


def _lane(problem: Problem, keys: Keys) -> tuple[jax.Array, Lanes]:
    """Return the devices of one candidate, int32 `[N]`, and its initial row of the state."""
    n, t, _ = problem.shape
    d = problem.num_devices
    device = decode(problem, keys).device
    # Transfers that are not needed have ranks too, but never become ready.
    key = key_bits(jnp.concatenate([keys.priority, keys.transfer.ravel()]))
    items = jnp.arange(key.size, dtype=jnp.int32)
    _, by_rank = lax.sort((key, items), num_keys=2, is_stable=False)
    rank = (
        jnp.zeros_like(key).at[by_rank].set(items, unique_indices=True, wrap_negative_indices=False)
    )

    reads = problem.first_read[1:] - problem.first_read[:-1]
    is_source = (reads == 0) & (items[:n] < problem.num_ops)
    *words, top = queue(jnp.concatenate([is_source, jnp.zeros(t * d, bool)])[by_rank])

    home = device[problem.producer]
    runs = jnp.take_along_axis(problem.op_ticks, device[:, None], 1)[:, 0]
    runs = jnp.where(problem.is_input, -1, runs)
    sent = problem.transfer_ticks[jnp.arange(t), home]
    waits = jnp.concatenate([reads, jnp.ones(t * d, jnp.int32)]) << device_bits(d)
    waits = waits | jnp.concatenate([device, jnp.repeat(home, d)])
    record = rank, waits, jnp.zeros_like(rank), jnp.concatenate([runs, sent.ravel()])
    return device, Lanes(
        by_rank=by_rank,
        top=top[0],
        words=jnp.concatenate([*words, jnp.zeros(1, jnp.int32)]),
        free=jnp.zeros(d + d * d, jnp.int32),
        records=jnp.stack(record, 1).ravel(),
    )


def _peak(problem: Problem, device: jax.Array, position: jax.Array) -> jax.Array:
    change, work = memory_changes(problem, device, position)
    # After the last item memory only falls, so later rows do not change the maximum.
    return jnp.max(jnp.cumsum(change, 0) + work, 0)
