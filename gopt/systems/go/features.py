"""What a group of ops has to do with a value: what the policy reads of a decision."""

import jax
import jax.numpy as jnp

from gopt.cost.timing import Timing
from gopt.systems.go.inputs import Inputs, log_share

BINS = 32  # of the makespan: the load of values is compared among ops that start in the same


def group_state(
    inputs: Inputs,
    group: jax.Array,
    on: jax.Array,
    mine: jax.Array,
    device: jax.Array,
    timing: Timing,
    size: int,
) -> jax.Array:
    """Returns what each group has to do with each value, float32 `[K, V, F]`.

    The share of the group's time that has it; of what the group reads, and of what others read of
    it, how much is made or read by ops that have it, in shares of all that is sent and in time, and
    the time of that between critical ops; how much time has it in all, with the group as well, of
    what starts when the group's ops do, and of critical ops; how many bytes; its place among the
    values.

    Then what is the same for all values: the time of the group; how much of what starts when its
    ops do is on their devices; how much of what it sends goes to other devices; when it runs; how
    much of its time is critical; and of its ops the least slack, how long a critical one waits for
    its device at most, and how much slack a critical one would have at most if what comes next on
    its device did not wait for it.

    Where values are no devices, the load and the bytes of a value tell only how common it is.

    Args:
      inputs: the graph.
      group: of each op, int32 `[N]`.
      on: which value an op has, float32 `[N, V]`.
      mine: which ops the task is about, float32 `[N, 1]`.
      device: where ops are placed, int32 `[N]`; those that are fused need not run there.
      timing: when they run.
      size: how many groups there may be, `K`.
    """
    values = on.shape[1]
    weight = inputs.share[:, None] + 1e-9  # a group of no time has a value, too
    whole = jnp.maximum(timing.makespan, 1).astype(jnp.float32)
    critical = (timing.slack == 0).astype(jnp.float32)[:, None]

    def of_group(x: jax.Array) -> jax.Array:
        """Returns means over the time of the ops of each group."""
        time = jnp.maximum(jax.ops.segment_sum(weight * mine, group, size), 1e-9)
        return jax.ops.segment_sum(weight * mine * x, group, size) / time

    def most(x: jax.Array) -> jax.Array:
        """Returns the most of any op of each group, 0 at least, `[K, 1]`."""
        return jnp.maximum(jax.ops.segment_max(mine * x, group, size), 0)

    def sent(uses: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns what groups read, and what is read of them, by the value at the other end."""
        reads = jax.ops.segment_sum(uses * on[maker], into, size)
        return reads, jax.ops.segment_sum(uses * on[reader], out, size)

    share = jax.ops.segment_sum(inputs.share[:, None] * mine, group, size)
    here = of_group(on)
    maker, reader = inputs.maker, inputs.reader
    out, into = group[maker], group[reader]
    outside = jnp.where(out == into, 0, inputs.sent)[:, None]
    reads, gives = sent(outside)
    urgent_reads, urgent_gives = sent(outside * critical[maker] * critical[reader])
    time = inputs.share[:, None] * on
    load = values * time.sum(0)
    moment = jnp.minimum(BINS * (timing.start / whole), BINS - 1).astype(jnp.int32)
    meets = of_group(_busy(inputs, moment, on)[moment])
    there = jax.nn.one_hot(device, inputs.allowed.shape[1])
    crowd = of_group(jnp.sum(_busy(inputs, moment, there)[moment] * there, 1, keepdims=True))
    away = jnp.where(device[maker] == device[reader], 0, inputs.sent)[:, None]
    held = jnp.sum(inputs.bytes[:, None] * on, 0)
    urgent = jax.ops.segment_sum(inputs.share[:, None] * mine * critical, group, size)
    waited = timing.start - timing.arrived
    start, slack, waited, yielding = (
        (each / whole)[:, None] for each in (timing.start, timing.slack, waited, timing.yielding)
    )
    columns = (
        *(here, _shares(reads), _shares(gives), log_share(reads), log_share(gives)),
        *(log_share(urgent_reads), log_share(urgent_gives)),
        *(load, load + values * share * (1 - here)),
        *(values * meets, _shares((time * critical).sum(0))),
        *(jnp.log1p(held), jnp.linspace(0, 1, values, dtype=jnp.float32)),
        *(log_share(share), crowd, log_share(jax.ops.segment_sum(away, out, size))),
        *(of_group(start), log_share(urgent), urgent / jnp.maximum(share, 1e-9)),
        *(1 - most(1 - log_share(slack)), most(log_share(waited * critical))),
        most(log_share(yielding * critical)),
    )
    return jnp.stack([jnp.broadcast_to(column, here.shape) for column in columns], -1)


def _busy(inputs: Inputs, moment: jax.Array, on: jax.Array) -> jax.Array:
    """Returns how time is shared out between values `[N, V]` at each moment, `[BINS, V]`."""
    return _shares(jax.ops.segment_sum(inputs.share[:, None] * on, moment, BINS))


def _shares(part: jax.Array) -> jax.Array:
    """Returns the parts of each row as shares of their sum, or zeros, `[..., V]`."""
    return part / jnp.maximum(part.sum(-1, keepdims=True), 1e-9)
