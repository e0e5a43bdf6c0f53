"""Features of groups and values, computed from a decision and its timing, for the policy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.op_times import OpTimes
from gopt.systems.go.actions import Task, task_of
from gopt.systems.go.decisions import OpDecisions
from gopt.systems.go.inputs import Inputs, log_share
from gopt.systems.go.settings import Settings

BINS = 32  # of the makespan: loads of values are compared among ops that start in the same bin


class Groups(NamedTuple):
    """Features of the groups of a level. `K` groups, `V` values, `F` features.

    Attributes:
      state: float32 `[K, V, F]`, see `observe`.
      is_move: bool `[K, V]`, the group may get the value, and at least one of its ops has another.
    """

    state: Any
    is_move: Any


class _Ops(NamedTuple):
    """Features of ops that are the same for all tasks. Times are shares of the makespan.

    Attributes:
      moment: int32 `[N]`, bin in which each op starts, one of `BINS`.
      crowd: float32 `[N]`, share of the work of that bin that is on the same device.
      start: float32 `[N]`, start of each op.
      slack: float32 `[N]`, slack of each op.
      waited: float32 `[N]`, time that critical ops wait for their device.
      local_slack: float32 `[N]`, slack of critical ops if the next op on their device did not wait.
      critical: float32 `[N]`, 1 for critical ops.
    """

    moment: jax.Array
    crowd: jax.Array
    start: jax.Array
    slack: jax.Array
    waited: jax.Array
    local_slack: jax.Array
    critical: jax.Array


class _Uses(NamedTuple):
    """Times to send the tensors of uses, in shares of the time of all ops.

    Attributes:
      sent: float32 `[E]`, of all uses, also those on one device.
      away: float32 `[E]`, of uses across devices; else 0.
      urgent: float32 `[E]`, of uses that a critical op waits for last; else 0.
    """

    sent: jax.Array
    away: jax.Array
    urgent: jax.Array


def observe(
    inputs: Inputs, decision: OpDecisions, timing: OpTimes, *, settings: Settings
) -> tuple[Groups, ...]:
    """Return features of each group and value, for each of `Settings.moves`.

    Features that depend on the value:

    - the share of the group's time that has the value;
    - the parts of the tensors that the group reads, and of the reads of its tensors, that belong to
      ops with the value: as shares, and as the time to send them, whether they are sent or not;
    - the time to send the tensors of these that critical ops wait for last;
    - the time with the value: of all ops, the same with the group added, of ops that start when the
      group's ops do, and of critical ops;
    - the bytes with the value, and its place among the values.

    Features that are the same for all values:

    - the group's time;
    - the share of the work that starts when its ops do and is on their devices;
    - the time to send its tensors to other devices;
    - the time when it runs;
    - the critical part of its time, as a time and as a share;
    - the least slack of its ops;
    - the longest time that a critical op waits for its device;
    - the largest slack that a critical op would have if the next op on its device did not wait.

    Where values are not devices, the load and bytes of a value only tell how common it is.

    Args:
      inputs: the graph.
      decision: previous decision, `[N]`. Each task reads its own part.
      timing: where and when ops run by that decision.
      settings: settings of the policy.
    """
    ops, uses = _of_ops(inputs, timing), _of_uses(inputs, timing)
    found = []
    for task in (task_of(name, inputs, decision) for name in settings.tasks):
        for level, most in enumerate(settings.levels):
            size = min(most, len(task.value))
            is_real = jnp.arange(size, dtype=jnp.int32) < inputs.count[level]
            found.append(_groups(inputs, ops, uses, task, inputs.group[level], is_real))
    return tuple(found)


def _of_ops(inputs: Inputs, timing: OpTimes) -> _Ops:
    whole = jnp.maximum(timing.makespan, 1).astype(jnp.float32)
    critical = (timing.slack == 0).astype(jnp.float32)
    start = timing.start.astype(jnp.float32) / whole
    waited = (timing.start - timing.arrived).astype(jnp.float32)
    moment = jnp.minimum(BINS * start, BINS - 1).astype(jnp.int32)
    there = jax.nn.one_hot(timing.device, inputs.allowed.shape[1], dtype=jnp.float32)
    return _Ops(
        moment=moment,
        crowd=jnp.sum(_busy(inputs, moment, there)[moment] * there, 1),
        start=start,
        slack=timing.slack.astype(jnp.float32) / whole,
        waited=critical * waited / whole,
        local_slack=critical * timing.local_slack.astype(jnp.float32) / whole,
        critical=critical,
    )


def _of_uses(inputs: Inputs, timing: OpTimes) -> _Uses:
    maker, reader = inputs.maker, inputs.reader
    there = timing.device[reader]
    is_away = timing.device[maker] != there
    arrives = jnp.where(is_away, timing.transfer_arrival[inputs.tensor, there], timing.end[maker])
    is_urgent = (timing.slack[reader] == 0) & (arrives == timing.start[reader])
    sent: jax.Array = inputs.sent
    return _Uses(sent, jnp.where(is_away, sent, 0), jnp.where(is_urgent, sent, 0))


def _groups(
    inputs: Inputs, ops: _Ops, uses: _Uses, task: Task, group: jax.Array, is_real: jax.Array
) -> Groups:
    """Return the features of the groups of a level; `is_real` is bool `[K]`."""
    size, values = len(is_real), task.may.shape[1]
    on = jax.nn.one_hot(task.value, values, dtype=jnp.float32)  # [N, V]
    mine, time = task.is_about.astype(jnp.float32)[:, None], inputs.share[:, None]
    weight = mine * (time + 1e-9)  # a group without time has a value, too

    # One segment sum over all columns is faster than one for each.
    meets = _busy(inputs, ops.moment, on)[ops.moment]
    averaged = jnp.concatenate([on, meets, ops.crowd[:, None], ops.start[:, None]], 1)
    columns = (
        *(weight * averaged, weight, mine * on, mine * (~task.may).astype(jnp.float32)),
        *(mine, mine * time, mine * time * ops.critical[:, None]),
    )
    summed = jax.ops.segment_sum(jnp.concatenate(columns, 1), group, size)
    means, weight, has, forbidden, members, share, urgent = _split(
        summed, averaged.shape[1], 1, values, values, 1, 1, 1
    )
    here, meets, crowd, start = _split(means / jnp.maximum(weight, 1e-9), values, values, 1, 1)
    longest = jnp.stack(
        [1 - log_share(ops.slack), *map(log_share, (ops.waited, ops.local_slack))], 1
    )
    longest = jnp.maximum(jax.ops.segment_max(mine * longest, group, size), 0)
    tight, waited, local_slack = _split(longest, 1, 1, 1)

    maker, reader = inputs.maker, inputs.reader
    out, into = group[maker], group[reader]
    is_outside = (out != into).astype(jnp.float32)[:, None]
    outside = is_outside * jnp.stack([uses.sent, uses.urgent], 1)  # [E, 2]
    made = (outside[:, :, None] * on[maker][:, None]).reshape(len(maker), -1)
    read = (outside[:, :, None] * on[reader][:, None]).reshape(len(maker), -1)
    reads, urgent_reads = _split(jax.ops.segment_sum(made, into, size), values, values)
    given = jax.ops.segment_sum(jnp.concatenate([read, uses.away[:, None]], 1), out, size)
    gives, urgent_gives, away = _split(given, values, values, 1)

    load = values * jnp.sum(time * on, 0, keepdims=True)
    each = (
        *(here, _shares(reads), _shares(gives), log_share(reads), log_share(gives)),
        *(log_share(urgent_reads), log_share(urgent_gives)),
        *(load, load + values * share * (1 - here), values * meets),
        *(_shares(jnp.sum(time * on * ops.critical[:, None], 0)),),
        *(
            jnp.log1p(jnp.sum(inputs.bytes[:, None] * on, 0)),
            jnp.linspace(0, 1, values, dtype=jnp.float32),
        ),
        *(log_share(share), crowd, log_share(away), start),
        *(log_share(urgent), urgent / jnp.maximum(share, 1e-9)),
        *(1 - tight, waited, local_slack),
    )
    state = jnp.stack([jnp.broadcast_to(x, here.shape).astype(jnp.float32) for x in each], -1)
    return Groups(state, is_real[:, None] & (has < members) & (forbidden == 0))


def _split(columns: jax.Array, *widths: int) -> list[jax.Array]:
    """Return consecutive columns of the given widths."""
    at = [sum(widths[: k + 1]) for k in range(len(widths) - 1)]
    return jnp.split(columns, at, 1)


def _busy(inputs: Inputs, moment: jax.Array, on: jax.Array) -> jax.Array:
    """Return the share of time of each value `[N, V]` in each bin, `[BINS, V]`."""
    return _shares(jax.ops.segment_sum(inputs.share[:, None] * on, moment, BINS))


def _shares(part: jax.Array) -> jax.Array:
    """Return the parts of each row as shares of their sum, or zeros, `[..., V]`."""
    return part / jnp.maximum(part.sum(-1, keepdims=True), 1e-9)
