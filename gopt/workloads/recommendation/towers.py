"""A ranking model with a tower for each group of features."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gopt.workloads.cases import Case, floats

Layer = tuple[Any, Any]  # weights [in, out] and offsets [out]


def towers(*, batch: int = 256, groups: int = 8, width: int = 64) -> Case:
    """Return a ranking model with a tower for each group of features.

    A tower is three dense layers, wide at first, and ends in a vector of `width`. Each vector is
    multiplied element by element with every other tower's vector. Two cross layers and a head read
    everything (after DCN-V2, Wang et al., 2021).

    Args:
      batch: impressions in a batch.
      groups: number of groups; the first has `width` features, each next one `width` more.
      width: size of a tower's output.
    """

    def network(
        features: Sequence[jax.Array],
        bottom: Sequence[Sequence[Layer]],
        cross: Sequence[Layer],
        head: Sequence[Layer],
    ) -> jax.Array:
        vectors = [_dense(x, layers) for x, layers in zip(features, bottom, strict=True)]
        pairs = [a * b for a, b in itertools.combinations(vectors, 2)]
        x = first = jnp.concatenate([*vectors, *pairs], axis=1)
        for weights, offsets in cross:
            x = first * (x @ weights + offsets) + x
        weights, offsets = head[-1]
        return jax.nn.sigmoid(_dense(x, head[:-1]) @ weights + offsets)[:, 0]

    def layers(*widths: int) -> list[Layer]:
        return [(floats(a, b), floats(b)) for a, b in itertools.pairwise(widths)]

    widths = [width * (k + 1) for k in range(groups)]
    everything = width * groups * (groups + 1) // 2
    return Case(
        network,
        (
            [floats(batch, features) for features in widths],
            [layers(features, 16 * width, 8 * width, width) for features in widths],
            layers(*[everything] * 3),
            layers(everything, 4 * width, 1),
        ),
    )


def _dense(x: jax.Array, layers: Sequence[Layer]) -> jax.Array:
    for weights, offsets in layers:
        x = jax.nn.relu(x @ weights + offsets)
    return x
