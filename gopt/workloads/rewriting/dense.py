"""A dense layer, its weights as shapes and as a function."""

from typing import Any

import jax

from gopt.workloads.cases import floats

Weights = dict[str, Any]


def dense(inputs: int, outputs: int) -> Weights:
    """Return the weights of a dense layer."""
    return {"kernel": floats(inputs, outputs), "bias": floats(outputs)}


def apply(weights: Weights, x: jax.Array) -> jax.Array:
    """Return what a dense layer makes of `[..., inputs]`."""
    return x @ weights["kernel"] + weights["bias"]
