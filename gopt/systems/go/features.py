"""What groups of ops have to do with values: what the policy reads of a decision."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.timing import Timing
from gopt.systems.go.actions import Task, task_of
from gopt.systems.go.decisions import Decision
from gopt.systems.go.inputs import Inputs, log_share
from gopt.systems.go.settings import Settings

BINS = 32  # of the makespan: the load of values is compared among ops that start in the same


class Groups(NamedTuple):
    """What there is to know of the groups of a level. `K` groups, `V` values, `F` features."""

    state: Any  # float32 [K, V, F], see `observe`
    is_move: Any  # bool [K, V], a group may get the value, and has another one in part at least


class _Ops(NamedTuple):
    """What there is to know of ops, whatever the task is."""

    moment: jax.Array  # int32 [N], when they start, of `BINS`
    crowd: jax.Array  # float32 [N], how much of what starts then is on the same device
    start: jax.Array  # float32 [N], as the next ones in shares of the makespan
    slack: jax.Array  # float32 [N]
    waited: jax.Array  # float32 [N], how long critical ones wait for their device
    yielding: jax.Array  # float32 [N], of critical ones
    critical: jax.Array  # float32 [N]


class _Uses(NamedTuple):
    """What it takes to send what is read, in shares of the time of all ops."""

    sent: jax.Array  # float32 [E], of all that is read, on the same device, too
    away: jax.Array  # float32 [E], of what is sent; else 0
    urgent: jax.Array  # float32 [E], of what critical ops wait for last; else 0


def observe(
    inputs: Inputs, decision: Decision, timing: Timing, *, settings: Settings
) -> tuple[Groups, ...]:
    """Returns what each group has to do with each value, for each of `Settings.moves`.

    The share of the group's time that has it; of what the group reads, and of what others read of
    it, how much is made or read by ops that have it, in shares and in the time that sending it
    takes, or would take, and the time of that of it for which critical ops wait last; how much time
    has it in all, with the group as well, of what starts when the group's ops do, and of critical
    ops; how many bytes; its place among the values.

    Then what is the same for all values: the time of the group; how much of what starts when its
    ops do is on their devices; how much of what it sends goes to other devices; when it runs; how
    much of its time is critical; and of its ops the least slack, how long a critical one waits for
    its device at most, and how much slack a critical one would have at most if what comes next on
    its device did not wait for it.

    Where values are no devices, the load and the bytes of a value tell only how common it is.

    Args:
      inputs: the graph.
      decision: what was decided, `[N]`. Each task sees its own part.
      timing: what came of it: where and when ops run.
      settings: of the policy.
    """
    ops, uses = _of_ops(inputs, timing), _of_uses(inputs, timing)
    found = []
    for task in (task_of(name, inputs, decision) for name in settings.tasks):
        for level, most in enumerate(settings.levels):
            size = min(most, len(task.value))
            is_real = jnp.arange(size) < inputs.count[level]
            found.append(_groups(inputs, ops, uses, task, inputs.group[level], is_real))
    return tuple(found)


def _of_ops(inputs: Inputs, timing: Timing) -> _Ops:
    whole = jnp.maximum(timing.makespan, 1).astype(jnp.float32)
    critical = (timing.slack == 0).astype(jnp.float32)
    start = timing.start / whole
    moment = jnp.minimum(BINS * start, BINS - 1).astype(jnp.int32)
    there = jax.nn.one_hot(timing.device, inputs.allowed.shape[1])
    return _Ops(
        moment=moment,
        crowd=jnp.sum(_busy(inputs, moment, there)[moment] * there, 1),
        start=start,
        slack=timing.slack / whole,
        waited=critical * (timing.start - timing.arrived) / whole,
        yielding=critical * timing.yielding / whole,
        critical=critical,
    )


def _of_uses(inputs: Inputs, timing: Timing) -> _Uses:
    maker, reader = inputs.maker, inputs.reader
    there = timing.device[reader]
    is_away = timing.device[maker] != there
    arrives = jnp.where(is_away, timing.received[inputs.tensor, there], timing.end[maker])
    is_urgent = (timing.slack[reader] == 0) & (arrives == timing.start[reader])
    sent: jax.Array = inputs.sent
    return _Uses(sent, jnp.where(is_away, sent, 0), jnp.where(is_urgent, sent, 0))


def _groups(
    inputs: Inputs, ops: _Ops, uses: _Uses, task: Task, group: jax.Array, is_real: jax.Array
) -> Groups:
    """Returns what there is to know of the groups of a level; `is_real` is bool `[K]`."""
    size, values = len(is_real), task.may.shape[1]
    on = jax.nn.one_hot(task.value, values)  # [N, V]
    mine, time = task.is_about.astype(jnp.float32)[:, None], inputs.share[:, None]
    weight = mine * (time + 1e-9)  # a group of no time has a value, too

    # All that is summed over the ops or the uses of a group is summed at once, which is faster.
    meets = _busy(inputs, ops.moment, on)[ops.moment]
    averaged = jnp.concatenate([on, meets, ops.crowd[:, None], ops.start[:, None]], 1)
    columns = (
        *(weight * averaged, weight, mine * on, mine * ~task.may),
        *(mine, mine * time, mine * time * ops.critical[:, None]),
    )
    summed = jax.ops.segment_sum(jnp.concatenate(columns, 1), group, size)
    means, weight, has, forbidden, members, share, urgent = _split(
        summed, averaged.shape[1], 1, values, values, 1, 1, 1
    )
    here, meets, crowd, start = _split(means / jnp.maximum(weight, 1e-9), values, values, 1, 1)
    longest = jnp.stack([1 - log_share(ops.slack), *map(log_share, (ops.waited, ops.yielding))], 1)
    longest = jnp.maximum(jax.ops.segment_max(mine * longest, group, size), 0)
    tight, waited, yielding = _split(longest, 1, 1, 1)

    maker, reader = inputs.maker, inputs.reader
    out, into = group[maker], group[reader]
    outside = (out != into)[:, None] * jnp.stack([uses.sent, uses.urgent], 1)  # [E, 2]
    made = (outside[:, :, None] * on[maker][:, None]).reshape(len(maker), -1)
    read = (outside[:, :, None] * on[reader][:, None]).reshape(len(maker), -1)
    reads, urgent_reads = _split(jax.ops.segment_sum(made, into, size), values, values)
    given = jax.ops.segment_sum(jnp.concatenate([read, uses.away[:, None]], 1), out, size)
    gives, urgent_gives, away = _split(given, values, values, 1)

    load = values * jnp.sum(time * on, 0)
    each = (
        *(here, _shares(reads), _shares(gives), log_share(reads), log_share(gives)),
        *(log_share(urgent_reads), log_share(urgent_gives)),
        *(load, load + values * share * (1 - here), values * meets),
        *(_shares(jnp.sum(time * on * ops.critical[:, None], 0)),),
        *(jnp.log1p(jnp.sum(inputs.bytes[:, None] * on, 0)), jnp.linspace(0, 1, values)),
        *(log_share(share), crowd, log_share(away), start),
        *(log_share(urgent), urgent / jnp.maximum(share, 1e-9)),
        *(1 - tight, waited, yielding),
    )
    state = jnp.stack([jnp.broadcast_to(x, here.shape).astype(jnp.float32) for x in each], -1)
    return Groups(state, is_real[:, None] & (has < members) & (forbidden == 0))


def _split(columns: jax.Array, *widths: int) -> list[jax.Array]:
    """Returns consecutive columns, so many of each."""
    at = [sum(widths[: k + 1]) for k in range(len(widths) - 1)]
    return jnp.split(columns, at, 1)


def _busy(inputs: Inputs, moment: jax.Array, on: jax.Array) -> jax.Array:
    """Returns how time is shared out between values `[N, V]` at each moment, `[BINS, V]`."""
    return _shares(jax.ops.segment_sum(inputs.share[:, None] * on, moment, BINS))


def _shares(part: jax.Array) -> jax.Array:
    """Returns the parts of each row as shares of their sum, or zeros, `[..., V]`."""
    return part / jnp.maximum(part.sum(-1, keepdims=True), 1e-9)
