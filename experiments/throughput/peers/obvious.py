"""Decode schedules with the obvious JAX loop: each step takes the ready item of smallest key.

A good first version by a JAX user: one candidate over dense tables, mapped over candidates with
`jax.vmap`. A step takes time in ops + tensors · devices, so a schedule takes quadratic time.
Results equal `gopt.cost.schedule.execution.evaluate` bit for bit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.problem import Problem


class _State(NamedTuple):
    """State of the loop."""

    ready: jax.Array  # bool [N + T·D], items that are ready
    waits: jax.Array  # int32 [N], number of tensors that an op still waits for
    arrived: jax.Array  # int32 [N], latest arrival of an op's tensors
    end: jax.Array  # int32 [N], ends of ops
    device_free: jax.Array  # int32 [D], times when devices are free
    link_free: jax.Array  # int32 [D·D], times when links are free
    readers: jax.Array  # int32 [T, D], remaining readers of a tensor on a device
    live: jax.Array  # int32 [D], units in use
    peak: jax.Array  # int32 [D], most units in use so far
    makespan: jax.Array  # int32 [], end of the last item so far


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Return the cost of one candidate, for up to a few thousand ops: tables are `[N, N]`."""
    problem = jax.tree.map(jnp.asarray, problem)
    (n, t, e), d = problem.shape, problem.num_devices
    devices, real = jnp.arange(d), jnp.arange(e) < problem.num_uses
    is_op, is_tensor = jnp.arange(n) < problem.num_ops, jnp.arange(t) < problem.num_tensors
    makes = (problem.producer == jnp.arange(n)[:, None]) & is_tensor  # [N, T]
    reads = jnp.zeros((t, n), jnp.int32).at[problem.tensor, problem.consumer].max(real)
    read_by = reads.T
    feeds = jnp.zeros((n, n), jnp.int32)  # number of tensors that one op makes and another reads
    feeds = feeds.at[problem.producer[problem.tensor], problem.consumer].add(real)
    made = jnp.where(problem.is_input, 0, makes @ problem.size)
    dropped = makes @ jnp.where(reads.any(1) | problem.pinned, 0, problem.size)

    device = jnp.argmax(jnp.where(problem.allowed, keys.device, -1), axis=1)
    key = jnp.concatenate([keys.priority, keys.transfer.ravel()])
    home = device[problem.producer]
    away = devices != home[:, None]  # [T, D]
    readers = jnp.zeros((t, d), jnp.int32).at[problem.tensor, device[problem.consumer]].add(real)
    sent = (readers > 0) & away
    readers += jnp.where(away, 0, (sent.sum(1) + problem.pinned)[:, None])
    resident = problem.is_input[problem.producer] & is_tensor
    live = jnp.where(resident[:, None] & ~away, problem.size[:, None], 0).sum(0)
    waits = reads.sum(0)

    def step(state: _State) -> _State:
        item = jnp.argmin(jnp.where(state.ready, key, jnp.inf))
        is_op = item < n
        op, slot = jnp.minimum(item, n - 1), jnp.maximum(item - n, 0)
        tensor, to = slot // d, slot % d
        source = home[tensor]
        here = jnp.where(is_op, device[op], to)

        runs = is_op & ~problem.is_input[op]
        op_end = jnp.maximum(state.device_free[here], state.arrived[op])
        op_end = jnp.where(problem.is_input[op], 0, op_end + problem.op_ticks[op, here])
        link = problem.channel[source, to]
        begin = state.end[problem.producer[tensor]]
        begin = jnp.maximum(begin, jnp.where(link < 0, 0, state.link_free[link]))
        both = jnp.maximum(state.device_free[source], state.device_free[to])
        begin = jnp.maximum(begin, jnp.where(problem.synchronous, both, 0))
        end = jnp.where(is_op, op_end, begin + problem.transfer_ticks[tensor, source, to])
        busy = (devices == here) | (devices == source) & ~is_op
        busy &= runs | ~is_op & problem.synchronous
        device_free = jnp.where(busy, end, state.device_free)
        used = ~is_op & (link == jnp.arange(d * d))

        arrives = jnp.where(is_op, feeds[op], reads[tensor]) * (device == here)
        waits = state.waits - arrives
        starts = (arrives > 0) & (waits == 0)
        wanted = is_op & makes[op][:, None] & sent
        ready = state.ready.at[item].set(False) | jnp.concatenate([starts, wanted.ravel()])

        gain = jnp.where(is_op, made[op], problem.size[tensor])
        live = state.live.at[here].add(gain)
        during = live.at[here].add(jnp.where(is_op, problem.workspace[op], 0))
        at = jnp.where(is_op, here, source)  # device where it reads
        taken = jnp.where(is_op, read_by[op], jnp.arange(t) == tensor)
        left = state.readers[:, at] - taken
        freed = jnp.sum(jnp.where((taken > 0) & (left == 0), problem.size, 0))
        freed += jnp.where(is_op, dropped[op], 0)
        return _State(
            ready=ready,
            waits=waits,
            arrived=jnp.where(arrives > 0, jnp.maximum(state.arrived, end), state.arrived),
            end=state.end.at[op].set(jnp.where(is_op, end, state.end[op])),
            device_free=device_free,
            link_free=jnp.where(used, end, state.link_free),
            readers=state.readers.at[:, at].set(left),
            live=live.at[at].add(-freed),
            peak=jnp.maximum(state.peak, during),
            makespan=jnp.maximum(state.makespan, end),
        )

    zeros = jnp.zeros(n, jnp.int32)
    first = _State(
        ready=jnp.concatenate([is_op & (waits == 0), jnp.zeros(t * d, bool)]),
        waits=waits,
        arrived=zeros,
        end=zeros,
        device_free=jnp.zeros(d, jnp.int32),
        link_free=jnp.zeros(d * d, jnp.int32),
        readers=readers,
        live=live,
        peak=live,
        makespan=jnp.int32(0),
    )
    last = lax.while_loop(lambda state: state.ready.any(), step, first)
    return Cost(last.makespan, last.peak)
