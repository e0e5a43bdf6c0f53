"""Functions with the shapes of their arguments, to be compiled by XLA: models of the library."""

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.workloads import WORKLOADS

Layer = tuple[Any, Any]  # weights [in, out] and offsets [out]


class Case(NamedTuple):
    """A function with its arguments as shapes."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()  # positions of the arguments whose buffers may be reused


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    """Returns the shape of a float32 array."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def forward(workload: str, **sizes: Any) -> Case:
    """Returns the inference of a model of `gopt.workloads`."""
    return Case(*WORKLOADS[workload](**sizes).forward())


def step(workload: str, **sizes: Any) -> Case:
    """Returns the training step of a model of `gopt.workloads`; it consumes what it replaces."""
    return Case(*WORKLOADS[workload](**sizes).train_step(), (0, 1))


def check_names(of: str, names: Sequence[str], known: Collection[str]) -> None:
    """Checks names of models or blocks; `of` says which of the two.

    Raises:
      ValueError: one is not known; the message names it.
    """
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValueError(f"{of} has {unknown[0]!r}: expected some of {', '.join(known)}")


def towers(*, batch: int = 256, groups: int = 8, width: int = 64) -> Case:
    """Returns a ranking model with a tower for each group of features.

    A tower is three dense layers, wide at first; its vectors of `width` meet those of all others
    in products, element by element, and two cross layers and a head read everything (after DCN-V2,
    Wang et al., 2021).

    Args:
      batch: impressions in a batch.
      groups: how many groups there are; the first has `width` features, each next one `width` more.
      width: of what a tower makes.
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


# Inference of single images, short texts and small batches, and training steps of small batches.
MODELS: dict[str, Callable[[], Case]] = {
    "nasnet_a forward": partial(forward, "nasnet_a"),
    "nasnet_a forward, batch 8": partial(forward, "nasnet_a", batch=8),
    "amoebanet forward": partial(forward, "amoebanet"),
    "inception_v3 forward": partial(forward, "inception_v3"),
    "unet forward": partial(forward, "unet"),
    "densenet forward": partial(forward, "densenet"),
    "randwire forward": partial(forward, "randwire"),
    "randwire forward, batch 8": partial(forward, "randwire", batch=8),
    "switch forward": partial(forward, "switch"),
    "dlrm forward, batch 8": partial(forward, "dlrm", batch=8),
    "dlrm forward": partial(forward, "dlrm"),
    "towers forward, batch 32": partial(towers, batch=32),
    "towers forward, batch 256": partial(towers, batch=256),
    "bert forward": partial(forward, "bert", layers=6),
    "unet step": partial(step, "unet", size=284),
    "nasnet_a step": partial(step, "nasnet_a", size=96, cells=2),
    "bert step": partial(step, "bert", layers=2),
    "gpt2 step": partial(step, "gpt2", layers=2, length=128),
}
