"""RandWire: convolutional networks with random wiring."""

import flax.linen as nn
import jax
import numpy as np

from gopt.sources.synthetic import small_world
from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import ConvBN, check_at_least

# WS(4, 0.75), the wiring with the best accuracy (paper, figure 3).
NEIGHBOURS = 4
REWIRING = 0.75


class Node(nn.Module):
    """A sum of inputs with learned weights in 0..1, then ReLU and a separable convolution.

    A single input is passed on unweighted.

    Attributes:
      features: number of output channels.
      strides: strides of the depthwise convolution.
    """

    features: int
    strides: int = 1

    @nn.compact
    def __call__(self, inputs: list[jax.Array]) -> jax.Array:
        """Return `[batch, height / strides, width / strides, features]`, rounded up."""
        if len(inputs) > 1:
            weights = nn.sigmoid(self.param("weights", nn.initializers.zeros, (len(inputs),)))
            inputs = [weights[i] * x for i, x in enumerate(inputs)]
        x = sum(inputs[1:], inputs[0])
        channels = x.shape[-1]
        x = nn.Conv(channels, (3, 3), self.strides, feature_group_count=channels, use_bias=False)(
            nn.relu(x)
        )
        return ConvBN(self.features)(x)


class Stage(nn.Module):
    """A random network of nodes, at half the resolution of its input.

    Attributes:
      edges: pairs of nodes (from, to), the smaller one first.
      nodes: number of nodes.
      features: number of channels of each node.
    """

    edges: tuple[tuple[int, int], ...]
    nodes: int
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the mean of the nodes that no other node reads."""
        made: list[jax.Array] = []
        for node in range(self.nodes):
            read = [made[u] for u, v in self.edges if v == node]
            made.append(Node(self.features, strides=1 if read else 2)(read or [x]))
        ends = sorted(set(range(self.nodes)) - {u for u, _ in self.edges})
        return sum((made[node] for node in ends[1:]), made[ends[0]]) / len(ends)


class RandWire(nn.Module):
    """Two convolutions, random stages with doubling channels, and a classifier.

    Attributes:
      wirings: edges of each stage, see `Stage`.
      nodes: number of nodes of a stage.
      width: channels of the first stage.
    """

    wirings: tuple[tuple[tuple[int, int], ...], ...]
    nodes: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.relu(ConvBN(self.width // 2, (3, 3), strides=2)(x))
        x = ConvBN(self.width, (3, 3), strides=2)(x)
        for stage, edges in enumerate(self.wirings):
            x = Stage(edges, self.nodes, self.width << stage)(x)
        x = nn.relu(ConvBN(1280)(nn.relu(x)))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def randwire(
    *,
    batch: int = 1,
    size: int = 224,
    stages: int = 3,
    nodes: int = 32,
    width: int = 78,
    seed: int = 0,
) -> Workload:
    """Return RandWire-WS of the small regime; by default about 5.6 million parameters.

    The numbers of parameters and operations depend slightly on the wiring. The paper publishes 5.6
    ± 0.1 million, and 583 ± 6 million multiplications (table 2). Wirings are our own draws.

    Args:
      batch: number of images.
      size: height and width of an image.
      stages: number of random stages.
      nodes: number of nodes of each stage, more than `NEIGHBOURS`.
      width: channels of the first stage.
      seed: random seed of the wirings.

    Raises:
      ValueError: an argument is too small.

    Source: Xie et al., Exploring Randomly Wired Neural Networks for Image Recognition (2019).
    """
    check_at_least(1, batch=batch, size=size, stages=stages)
    check_at_least(NEIGHBOURS + 1, nodes=nodes)
    check_at_least(2, width=width)
    rng = np.random.default_rng(seed)
    drawn = [small_world(rng, nodes, NEIGHBOURS, REWIRING) for _ in range(stages)]
    wirings = tuple(tuple((u, v) for u, v in edges.tolist()) for edges in drawn)
    return image_classifier("randwire", RandWire(wirings, nodes, width), batch=batch, size=size)
