"""Networks with random layers and random joints."""

from functools import reduce
from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gopt.workloads.base import Workload, cross_entropy
from gopt.workloads.layers import check_at_least

# A layer, (kind,), or joined parts, (joint, part, part, ...).
Plan: TypeAlias = tuple["str | Plan", ...]

LAYERS = ("dense", "convolution", "normalisation", "gate", "attention", "recurrence")
JOINTS = ("sequence", "residual", "sum", "product", "concatenation", "dense_block", "halved")
STEPS = 4  # steps of a recurrence
CLASSES = 100


def draw(rng: np.random.Generator, layers: int, length: int) -> Plan:
    """Draw a random plan of layers.

    Each joint is a sequence with probability 1/2 at least, so that plans are deep as well as wide.

    Args:
      rng: random generator.
      layers: number of layers.
      length: length of the sequences.
    """
    if layers == 1:
        return (str(rng.choice(LAYERS if length % STEPS == 0 else LAYERS[:-1])),)
    joints = JOINTS if length % 2 == 0 else JOINTS[:-1]
    joint = "sequence" if rng.random() < 0.5 else str(rng.choice(joints))
    length = length // 2 if joint == "halved" else length
    parts = int(rng.integers(2, min(layers, 4) + 1))
    cuts = np.sort(rng.choice(np.arange(1, layers), parts - 1, replace=False))
    sizes = np.diff([0, *cuts, layers])
    return (joint, *(draw(rng, int(size), length) for size in sizes))


class Layer(nn.Module):
    """A layer of one of the kinds in `LAYERS`.

    Attributes:
      kind: kind of the layer.
    """

    kind: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map `[batch, length, width]` to the same shape."""
        width = x.shape[-1]
        match self.kind:
            case "dense":
                return nn.relu(nn.Dense(width)(x))
            case "convolution":
                return nn.gelu(nn.Conv(width, (3,))(x))
            case "normalisation":
                return nn.LayerNorm()(x)
            case "gate":
                return nn.tanh(nn.Dense(width)(x)) * nn.sigmoid(nn.Dense(width)(x))
            case "attention":
                query, key, value = jnp.split(nn.Dense(3 * width)(x), 3, -1)
                scores = query @ key.swapaxes(1, 2) / np.sqrt(width)
                return nn.softmax(scores) @ value
            case "recurrence":
                mix = nn.Dense(width)
                pieces = jnp.split(x, STEPS, 1)
                states = [jnp.zeros_like(pieces[0])]
                for piece in pieces:
                    states.append(nn.tanh(mix(jnp.concatenate([states[-1], piece], -1))))
                return jnp.concatenate(states[1:], 1)
        raise ValueError(f"kind is {self.kind!r}: expected one of {', '.join(LAYERS)}")


class Block(nn.Module):
    """The layers of a plan, joined accordingly.

    Attributes:
      plan: layers and joints.
    """

    plan: Plan

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map `[batch, length, width]` to the same shape."""
        joint, *plans = self.plan
        if not plans:
            return Layer(str(joint))(x)
        parts = [Block(tuple(plan)) for plan in plans]
        width = x.shape[-1]

        def chain(x: jax.Array) -> jax.Array:
            return reduce(lambda x, part: part(x), parts, x)

        match joint:
            case "sequence":
                return chain(x)
            case "residual":
                return x + chain(x)
            case "sum":
                return reduce(jnp.add, [part(x) for part in parts])
            case "product":
                return reduce(jnp.multiply, [nn.sigmoid(part(x)) for part in parts], x)
            case "concatenation":
                return nn.Dense(width)(jnp.concatenate([part(x) for part in parts], -1))
            case "dense_block":
                for part in parts:
                    x = jnp.concatenate([x, part(nn.Dense(width)(x))], -1)
                return nn.Dense(width)(x)
            case "halved":
                inner = jnp.repeat(chain(nn.avg_pool(x, (2,), (2,))), 2, 1)
                return nn.Dense(width)(jnp.concatenate([x, inner], -1))
        raise ValueError(f"joint is {joint!r}: expected one of {', '.join(JOINTS)}")


class RandomNetwork(nn.Module):
    """A random block and a classifier of the mean over the sequence.

    Attributes:
      plan: layers and joints of the block.
    """

    plan: Plan

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 100]` of sequences `[batch, length, width]`."""
        return nn.Dense(CLASSES)(Block(self.plan)(x).mean(1))


def random_network(
    *, batch: int = 16, length: int = 128, width: int = 256, layers: int = 12, seed: int = 0
) -> Workload:
    """Return a network drawn from a seed, as training data for policies.

    A network is a tree. Its leaves are dense, convolutional, recurrent and attention layers, gates
    and normalisations. Its joints are sequences, residual and dense connections, branches that are
    added, multiplied or concatenated, and parts at half the resolution. Policies trained on such
    networks should generalise to unseen ones.

    Args:
      batch: number of sequences.
      length: length of a sequence.
      width: width of a token.
      layers: number of layers.
      seed: random seed of the tree.

    Raises:
      ValueError: an argument is too small.
    """
    check_at_least(1, batch=batch, length=length, width=width, layers=layers)
    plan = draw(np.random.default_rng(seed), layers, length)
    return Workload(
        name="random_network",
        module=RandomNetwork(plan),
        inputs=(jax.ShapeDtypeStruct((batch, length, width), jnp.float32),),
        loss=cross_entropy,
        targets=jax.ShapeDtypeStruct((batch,), jnp.int32),
    )
