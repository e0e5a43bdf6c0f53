"""The training steps, fixed before any search, with `jax.checkpoint` where a user could put it."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

import flax.linen as nn
import jax
import optax

from experiments.memory.other_libraries import equinox_step, nnx_step
from experiments.memory.transformer import Wrap, transformer_step
from gopt.workloads import WORKLOADS


class Step(NamedTuple):
    """A training step; it consumes its first two arguments.

    Attributes:
      fn: the step.
      args: shapes of its arguments.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]


def same(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function unchanged."""
    return fn


def workload_step(
    wrap_block: Wrap, wrap_loss: Wrap, *, name: str, block: str, **sizes: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the training step of a model of `gopt.workloads`.

    Args:
      wrap_block: maps the class of a block.
      wrap_loss: maps the loss as a function of the parameters.
      name: name of the model.
      block: module and class of a block, or "".
      **sizes: sizes of the model and of a batch.
    """
    optimizer = optax.sgd(0.1, momentum=0.9)

    @contextlib.contextmanager
    def wrapped() -> Iterator[None]:
        module, _, cls = block.rpartition(".")
        if wrap_block is same or not block:
            yield
            return
        found = import_module(f"gopt.workloads.{module}")
        changed: Any = wrap_block(getattr(found, cls))
        changed.__name__ = cls  # parameters are named after it
        with patch.object(found, cls, changed):
            yield

    with wrapped():
        model = WORKLOADS[name](**sizes)
        variables = model.variables()

    def step(variables: Any, state: Any, inputs: Any, targets: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            outputs = model.module.apply({**variables, "params": params}, *inputs)
            return model.loss(outputs, targets)

        with wrapped():
            value, grads = jax.value_and_grad(wrap_loss(loss))(variables["params"])
        updates, state = optimizer.update(grads, state, variables["params"])
        params = optax.apply_updates(variables["params"], updates)
        return {**variables, "params": params}, state, value

    state = jax.eval_shape(optimizer.init, variables["params"])
    return step, (variables, state, model.inputs, model.targets)


_BERT: dict[str, Any] = {"hidden": 256, "heads": 4, "inner": 1024, "vocabulary": 3000}
_GPT2: dict[str, Any] = {**_BERT, "vocabulary": 2000, "length": 128}
_TXL: dict[str, Any] = {"batch": 4, "length": 128, "memory": 128, "layers": 4}
_MAMBA: dict[str, Any] = {"batch": 2, "length": 256, "layers": 4, "hidden": 256, "vocabulary": 1000}
_WAVENET: dict[str, Any] = {"batch": 2, "length": 4096, "stacks": 1, "layers": 10, "channels": 64}
_NETWORK: dict[str, Any] = {"nodes": 1000, "edges": 8000, "steps": 6}
_SMALL: dict[str, Any] = {"width": 128, "batch": 8, "length": 128}
_WIDE: dict[str, Any] = {"width": 256, "batch": 16, "length": 256}

# Name to a function of what wraps blocks and what wraps the loss.
STEPS: dict[str, Callable[[Wrap, Wrap], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "bert": partial(
        workload_step, name="bert", block="transformers.bert.Block", layers=4, batch=16, **_BERT
    ),
    "gpt2": partial(
        workload_step, name="gpt2", block="transformers.gpt2.Block", layers=4, batch=16, **_GPT2
    ),
    "vit": partial(
        workload_step,
        name="vit",
        block="transformers.vit.Block",
        layers=6,
        batch=8,
        hidden=384,
        heads=6,
        inner=1536,
    ),
    "unet": partial(workload_step, name="unet", block="", size=188, width=32),
    "resnet": partial(
        workload_step, name="resnext", block="", batch=8, size=96, groups=1, width=64
    ),
    "transformer_xl": partial(workload_step, name="transformer_xl", block="", **_TXL),
    "mamba": partial(workload_step, name="mamba", block="sequential.mamba.Mixer", **_MAMBA),
    "wavenet": partial(workload_step, name="wavenet", block="sequential.wavenet.Layer", **_WAVENET),
    "graph_network": partial(
        workload_step, name="graph_network", block="graph_network.MessagePassing", **_NETWORK
    ),
    "equinox": equinox_step,
    "nnx": nnx_step,
    "transformer-4": partial(transformer_step, layers=4, **_SMALL),
    "transformer-6": partial(transformer_step, layers=6, **_WIDE),
    "transformer-12": partial(transformer_step, layers=12, **_SMALL),
}


def plain(name: str, **sizes: int) -> Step:
    """Return a training step as a user writes it, without `jax.checkpoint`.

    Args:
      name: name of the step.
      **sizes: sizes other than the step's own, such as `batch`.
    """
    return Step(*STEPS[name](same, same, **sizes))


def batch_of(name: str) -> int | None:
    """Return the size of a step's batch; `None` if it has no batch."""
    make = partial(STEPS[name])
    parameter = inspect.signature(make).parameters.get("batch")
    return parameter.default if parameter else make.keywords.get("batch")


def checkpointed(name: str, **sizes: int) -> dict[str, Step]:
    """Return the step with each standard policy around the whole loss, and around each block.

    Args:
      name: name of the step.
      **sizes: sizes other than the step's own, such as `batch`.
    """
    policies = {
        "nothing": jax.checkpoint_policies.nothing_saveable,
        "dots": jax.checkpoint_policies.dots_saveable,
        "dots without batch": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    }
    make, found = partial(STEPS[name], **sizes), {}
    options = make.keywords
    is_flax = "block" in options
    has_blocks = bool(options.get("block", True))
    for policy_name, policy in policies.items():
        whole = partial(jax.checkpoint, policy=policy)
        found[f"loss, {policy_name}"] = Step(*make(same, whole))
        if has_blocks:
            blocks = partial(nn.remat, policy=policy) if is_flax else whole
            found[f"blocks, {policy_name}"] = Step(*make(blocks, same))
    return found
