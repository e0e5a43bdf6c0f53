"""Definition of a workload: a Flax model with example inputs, as functions to trace."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Int, Shaped

Tree = Any


@dataclass(frozen=True)
class Workload:
    """A model and the shapes of one batch; nothing is allocated until it runs.

    Attributes:
      name: name of the workload in tables.
      module: Flax model, called as `module.apply(variables, *inputs)`.
      inputs: one `jax.ShapeDtypeStruct` per positional input of the model.
      loss: function from (outputs of the model, targets) to a scalar.
      targets: shapes of the targets of the loss.
    """

    name: str
    module: nn.Module
    inputs: tuple[jax.ShapeDtypeStruct, ...]
    loss: Callable[[Tree, Tree], jax.Array]
    targets: Tree

    def variables(self) -> Tree:
        """Return the shapes of all variable collections (parameters, batch statistics)."""
        return self._variables

    @cached_property
    def _variables(self) -> Tree:
        key = jax.eval_shape(lambda: jax.random.key(0))
        return jax.eval_shape(self.module.init, key, *self.inputs)

    def num_parameters(self) -> int:
        """Return the number of trainable scalars."""
        return sum(x.size for x in jax.tree.leaves(self.variables()["params"]))

    def forward(self) -> tuple[Callable[..., Tree], tuple[Tree, ...]]:
        """Return `(fn, args)` of inference, `fn(variables, *inputs)`."""
        return self.module.apply, (self.variables(), *self.inputs)

    def train_step(self) -> tuple[Callable[..., Tree], tuple[Tree, ...]]:
        """Return `(fn, args)` of one SGD step, `fn(variables, momentum, inputs, targets)`.

        The step returns (variables, momentum, loss). `variables` and `momentum` are meant to be
        donated: `donate_argnums=(0, 1)`. Batch statistics are fixed, so a step is a pure function
        of the batch. Dropout is not applied.
        """
        optimizer = optax.sgd(0.1, momentum=0.9)

        def step(variables: Tree, momentum: Tree, inputs: Tree, targets: Tree) -> Tree:
            def objective(params: Tree) -> jax.Array:
                return self.loss(
                    self.module.apply({**variables, "params": params}, *inputs), targets
                )

            loss, grads = jax.value_and_grad(objective)(variables["params"])
            updates, momentum = optimizer.update(grads, momentum, variables["params"])
            params = optax.apply_updates(variables["params"], updates)
            return {**variables, "params": params}, momentum, loss

        variables = self.variables()
        momentum = jax.eval_shape(optimizer.init, variables["params"])
        return step, (variables, momentum, self.inputs, self.targets)


def image(batch: int, size: int, channels: int = 3) -> jax.ShapeDtypeStruct:
    """Return the shape of a batch of float32 images, `[batch, size, size, channels]`.

    Args:
      batch: number of images.
      size: height and width of an image.
      channels: number of channels.
    """
    return jax.ShapeDtypeStruct((batch, size, size, channels), jnp.float32)


def tokens(batch: int, length: int) -> jax.ShapeDtypeStruct:
    """Return the shape of a batch of int32 token sequences, `[batch, length]`.

    Args:
      batch: number of sequences.
      length: number of tokens in a sequence.
    """
    return jax.ShapeDtypeStruct((batch, length), jnp.int32)


def image_classifier(name: str, module: nn.Module, *, batch: int, size: int) -> Workload:
    """Return the workload of a model that maps `image(batch, size)` to logits."""
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return Workload(name, module, (image(batch, size),), cross_entropy, labels)


def language_model(name: str, module: nn.Module, *, batch: int, length: int) -> Workload:
    """Return the workload of a model that maps `tokens(batch, length)` to next-token logits."""
    sequence = tokens(batch, length)
    return Workload(name, module, (sequence,), cross_entropy, sequence)


def text_to_text(
    name: str,
    module: nn.Module,
    batch: int,
    source_length: int,
    target_length: int,
    *,
    loss: Callable[[Tree, Tree], jax.Array] | None = None,
) -> Workload:
    """Return the workload of a model that maps pairs of texts to next-token logits of the second.

    The loss is the cross-entropy by default.
    """
    source, target = tokens(batch, source_length), tokens(batch, target_length)
    return Workload(name, module, (source, target), loss or cross_entropy, target)


def cross_entropy(
    logits: Shaped[jax.Array, "... classes"], labels: Int[jax.Array, " ..."]
) -> jax.Array:
    """Return the mean cross-entropy of logits against integer labels.

    Args:
      logits: logits, `[..., classes]`.
      labels: classes, int `[...]`.
    """
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
