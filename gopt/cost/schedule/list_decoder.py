"""Decode keys by list scheduling, with a greedy choice of the devices that keys leave open.

Ready ops are issued by priority. Each goes to the allowed device where it would finish first,
after transfers of the inputs that the device lacks. An op with a device key above `PIN` is
pinned: it goes to its largest key, as in `gopt.cost.schedule.execution`. So keys range from a pure
list heuristic (no pins) to full control (all pinned). A search may start from a good schedule
and move one op without placing the others again.

Source of the greedy choice: Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems
with interprocessor communication times", SIAM Journal on Computing 18 (1989).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.engine import ready_queue
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.cost.schedule.problem import MAX_TICKS, Problem

PIN = 0.5  # an op with a device key above this is pinned to its largest key
_NOWHERE = -1


def decode_by_list(problem: Problem, keys: Keys) -> tuple[Keys, jax.Array]:
    """Return the keys of the constructed schedule, and its makespan in ticks, int32.

    The returned keys are standard: `gopt.cost.schedule.execution` decodes them to this schedule.
    A construction counts as one evaluation. Inputs that are not pinned are placed with their first
    consumer.

    Args:
      problem: one problem; compose with `jax.vmap` for a population or a batch.
      keys: `device [N, D]`, or None to pin nothing; `priority [N]`; `transfer` is not read.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    problem = jax.tree.map(jnp.asarray, problem)
    n, d = problem.op_ticks.shape
    for field, shape in (("device", (n, d)), ("priority", (n,))):
        leaf = getattr(keys, field)
        if leaf is None and field == "device":
            continue
        if jnp.shape(leaf) != shape:
            raise ValueError(
                f"keys.{field} has shape {jnp.shape(leaf)}: expected {shape}; "
                "use jax.vmap for a population"
            )
    pin = _pins(problem, keys.device)
    order, count = _order(problem, jnp.asarray(keys.priority))
    device, makespan = _place(problem, pin, order, count)
    return _standard(problem, device, order), makespan


def _pins(problem: Problem, key: Any) -> jax.Array:
    """Return the device that each op is pinned to, or `_NOWHERE`. int32 `[N]`."""
    key = jnp.zeros(problem.op_ticks.shape, jnp.float32) if key is None else key
    key = jnp.where(problem.allowed, key, -jnp.inf)
    # An input follows its first consumer only if all devices are allowed for it.
    bound = problem.is_input & ~problem.allowed.all(-1)
    wanted = (jnp.max(key, -1) > PIN) | bound
    return jnp.where(wanted, jnp.argmax(key, -1), _NOWHERE).astype(jnp.int32)


@jax.custom_batching.sequential_vmap
def _order(problem: Problem, priority: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the real non-input ops in issue order, then -1, and their number."""
    n = problem.shape.ops
    key = jnp.where(problem.is_input | (priority <= 0), jnp.float32(0), priority)
    ops = jnp.arange(n, dtype=jnp.int32)
    by_rank, rank = rank_by_key(key, ops, problem.num_ops)
    waits = problem.first_read[1:] - problem.first_read[:-1]
    sources = (waits == 0) & (ops < problem.num_ops)
    queue = ready_queue.create(n, jnp.where(sources, rank, ready_queue.EMPTY))

    def issue(state: Any) -> Any:
        queue, next_rank, waits, order, count = state
        queue = ready_queue.remove(queue, next_rank)
        op = load(by_rank, next_rank)
        order = store(order, count, op)
        first = load(problem.first_use, load(problem.first_tensor, op))
        last = load(problem.first_use, load(problem.first_tensor, op + 1))

        def notify(state: Any) -> Any:
            use, queue, waits = state
            reader = load(problem.consumer, use)
            waits = store(waits, reader, load(waits, reader) - 1)
            wanted = load(waits, reader) == 0
            return use + 1, ready_queue.add(queue, load(rank, reader), wanted), waits

        _, queue, waits = lax.while_loop(lambda s: s[0] < last, notify, (first, queue, waits))
        count = count + (~load(problem.is_input, op)).astype(jnp.int32)
        return queue, ready_queue.first(queue), waits, order, count

    order = jnp.full(n, -1, jnp.int32)
    state = (queue, ready_queue.first(queue), waits, order, jnp.int32(0))
    *_, order, count = lax.while_loop(lambda s: s[1] != ready_queue.EMPTY, issue, state)
    return jnp.where(ops < count, order, -1), count


@jax.custom_batching.sequential_vmap
def _place(
    problem: Problem, pin: jax.Array, order: jax.Array, count: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the device of each op, int32 `[N]`, and the makespan in ticks.

    Each op is tried on each device, then placed on the best. A trial takes one step per read of
    the op, and one for the op itself. The resources it would occupy are kept apart from those that
    are occupied, and are valid only under the trial's own stamp.

    A step starts with the writes of the step before, so that no array is read and written at once
    (see `gopt.cost.schedule.engine.cells`). Discarded values go to a spare cell. It is one flat
    loop because XLA compiles only small loops to native functions.
    """
    n, d = problem.op_ticks.shape
    spare = n + problem.shape.tensors * d  # spare item
    idle = d + d * d  # spare resource, always free; devices come first, then links
    shared = (problem.channel >= 0) & ~jnp.eye(d, dtype=bool)
    link = jnp.where(shared, d + problem.channel, idle).ravel()
    op_ticks = jnp.where(problem.allowed, problem.op_ticks, MAX_TICKS).ravel()
    transfer_ticks = problem.transfer_ticks.ravel()

    def first_trial(bound: jax.Array) -> jax.Array:
        return jnp.where(bound < 0, jnp.int32(0), jnp.int32(d))

    def step(state: Any) -> Any:
        k, trial, read, latest, busy, best, best_end, writes, arrays = state
        device, end, free, tried, stamp = arrays
        is_final = trial == d
        here = jnp.where(is_final, best, trial)
        now = k * (d + 1) + trial

        stamped, via, kept, sender, item, maker, home, finish = writes
        used = jnp.where(via == idle, 0, finish)
        tried = store(tried, via, used)
        stamp = store(stamp, via, stamped)
        free = store(free, kept, jnp.where(kept == idle, 0, finish))
        free = store(free, sender, jnp.where(sender == idle, 0, finish))
        end = store(end, item, finish)
        device = store(device, maker, home)

        op = load(order, k)
        is_op = read == load(problem.first_read, op + 1)
        tensor = load(problem.read, read)
        maker = jnp.where(is_op, op, load(problem.producer, tensor))
        home = load(device, maker)
        copy = n + tensor * d + here
        there = jnp.where(is_op, latest, load(end, copy))
        is_sent = (home != here) & (home != _NOWHERE) & (there < 0)
        source = jnp.where(is_sent, home, here)
        pair = source * d + here
        via = jnp.where(is_op, here, load(link, pair))
        both = problem.synchronous & is_sent
        sender = jnp.where(both, source, idle)
        taken = jnp.where(load(stamp, via) == now, load(tried, via), load(free, via))
        taken = jnp.maximum(taken, load(free, sender))
        taken = jnp.maximum(taken, load(free, jnp.where(both, here, idle)))
        begin = jnp.maximum(jnp.maximum(taken, busy), load(end, maker))
        sent = jnp.where(is_sent, load(transfer_ticks, tensor * (d * d) + pair), 0)
        finish = jnp.maximum(begin, there) + jnp.where(is_op, load(op_ticks, op * d + here), sent)
        latest = jnp.where(is_op, 0, jnp.maximum(latest, finish))
        busy = jnp.where(is_op, 0, jnp.where(both, finish, busy))

        item = jnp.where(is_final & (is_op | is_sent), jnp.where(is_op, op, copy), spare)
        kept = jnp.where(is_final, via, idle)
        sender = jnp.where(is_final, sender, idle)
        home = jnp.where(is_final & (home == _NOWHERE), here, home)
        writes = now, via, kept, sender, item, maker, home, finish

        is_better = is_op & (finish < best_end)
        best = jnp.where(is_better, here, best)
        best_end = jnp.where(is_better, finish, best_end)
        is_done = is_op & is_final
        k = k + is_done.astype(jnp.int32)
        op = load(order, k)
        bound = load(pin, op)
        best = jnp.where(is_done, bound, best)
        best_end = jnp.where(is_done, MAX_TICKS, best_end)
        trial = jnp.where(is_done, first_trial(bound), trial + is_op.astype(jnp.int32))
        read = jnp.where(is_op, load(problem.first_read, op), read + 1)
        arrays = device, end, free, tried, stamp
        return k, trial, read, latest, busy, best, best_end, writes, arrays

    zero = jnp.int32(0)
    device = jnp.where(problem.is_input, pin, _NOWHERE)
    end = jnp.where(jnp.arange(spare + 1, dtype=jnp.int32) < n, jnp.int32(0), jnp.int32(-1))
    none = jnp.zeros(idle + 1, jnp.int32)
    op = order[0]
    bound = load(pin, op)
    state = (
        zero,
        first_trial(bound),
        load(problem.first_read, op),
        zero,
        zero,
        bound,
        jnp.int32(MAX_TICKS),
        tuple(map(jnp.int32, (-1, idle, idle, idle, spare, n, 0, 0))),
        (jnp.append(device, 0), end, none, none, none),
    )
    *_, writes, (device, end, *_) = lax.while_loop(lambda s: s[0] < count, step, state)
    device, end = store(device, writes[5], writes[6]), store(end, writes[4], writes[7])
    return jnp.maximum(device[:n], 0), jnp.max(end[:n])


def _standard(problem: Problem, device: jax.Array, order: jax.Array) -> Keys:
    """Return keys that give ops these devices, and issue each op right after its transfers."""
    n, d = problem.op_ticks.shape
    t = problem.shape.tensors
    steps = jnp.arange(1, n + 1, dtype=jnp.int32)
    position = jnp.where(problem.is_input, jnp.int32(0), jnp.int32(n + 1))
    position = position.at[order].set(steps, mode="drop", wrap_negative_indices=False)
    copy = problem.tensor * d + device[problem.consumer]
    first = jnp.full(t * d, n + 1, jnp.int32).at[copy].min(position[problem.consumer])
    # Ops get odd numbers. A transfer gets the even one before the first op that waits for it.
    scale = jnp.float32(2 * n + 3)
    return Keys(
        device=jax.nn.one_hot(device, d, dtype=jnp.float32),
        priority=(2 * position + 1).astype(jnp.float32) / scale,
        transfer=(2 * first).reshape(t, d).astype(jnp.float32) / scale,
    )
