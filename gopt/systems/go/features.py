"""What a group of ops has to do with a value: what the policy reads of a decision."""

import jax
import jax.numpy as jnp

from gopt.systems.go.inputs import BINS, Inputs, log_share


def group_state(
    inputs: Inputs,
    group: jax.Array,
    on: jax.Array,
    mine: jax.Array,
    device: jax.Array,
    size: int,
) -> jax.Array:
    """Returns what each group has to do with each value, float32 `[K, V, F]`.

    The share of the group's time that has it; of what the group reads, and of what others read of
    it, how much is made or read by ops that have it, in shares of all that is sent and in time; how
    much time has it in all, with the group as well, and while the group could run; how many bytes;
    its place among the values; the time of the group; how busy the devices of the group are while
    it could run; and how much of what it sends goes to other devices. Where values are no devices,
    the load and the bytes of a value tell only how common it is.

    Args:
      inputs: the graph.
      group: of each op, int32 `[N]`.
      on: which value an op has, float32 `[N, V]`.
      mine: which ops the task is about, float32 `[N, 1]`.
      device: where ops run, int32 `[N]`.
      size: how many groups there may be, `K`.
    """
    values = on.shape[1]
    weight = inputs.share[:, None] + 1e-9  # a group of no time has a value, too

    def of_group(x: jax.Array) -> jax.Array:
        """Returns means over the time of the ops of each group."""
        time = jnp.maximum(jax.ops.segment_sum(weight * mine, group, size), 1e-9)
        return jax.ops.segment_sum(weight * mine * x, group, size) / time

    share = jax.ops.segment_sum(inputs.share[:, None] * mine, group, size)
    here = of_group(on)
    maker, reader = inputs.maker, inputs.reader
    out, into = group[maker], group[reader]
    sent = jnp.where(out == into, 0, inputs.sent)[:, None]
    reads = jax.ops.segment_sum(sent * on[maker], into, size)
    gives = jax.ops.segment_sum(sent * on[reader], out, size)
    time = inputs.share[:, None] * on
    load = values * time.sum(0)
    meets = of_group(_busy(inputs, on)[inputs.moment])
    there = jax.nn.one_hot(device, inputs.allowed.shape[1])
    crowd = of_group(jnp.sum(_busy(inputs, there)[inputs.moment] * there, 1, keepdims=True))
    away = jnp.where(device[maker] == device[reader], 0, inputs.sent)[:, None]
    held = jnp.sum(inputs.bytes[:, None] * on, 0)
    columns = (
        *(here, _shares(reads), _shares(gives), log_share(reads), log_share(gives)),
        *(load, load + values * share * (1 - here), values * meets, jnp.log1p(held)),
        *(jnp.linspace(0, 1, values, dtype=jnp.float32), log_share(share)),
        *(crowd, log_share(jax.ops.segment_sum(away, out, size))),
    )
    return jnp.stack([jnp.broadcast_to(column, here.shape) for column in columns], -1)


def _busy(inputs: Inputs, on: jax.Array) -> jax.Array:
    """Returns how time is shared out between values `[N, V]` at each moment, `[BINS, V]`."""
    return _shares(jax.ops.segment_sum(inputs.share[:, None] * on, inputs.moment, BINS))


def _shares(part: jax.Array) -> jax.Array:
    """Returns the parts of each row as shares of their sum, or zeros, `[..., V]`."""
    return part / jnp.maximum(part.sum(-1, keepdims=True), 1e-9)
