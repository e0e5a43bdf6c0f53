"""Every workload at a tiny setting: traced, compiled and stepped once for all tests."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gopt.workloads import (
    amoebanet,
    bert,
    conformer,
    deeprank,
    densenet,
    dlrm,
    efficientnet,
    gnmt,
    gpt2,
    graph_network,
    hrnet,
    inception_v3,
    mamba,
    mlp_mixer,
    mnasnet,
    mobilenet_v2,
    nasnet_a,
    random_network,
    randwire,
    resnext,
    rnnlm,
    shufflenet_v2,
    squeezenet,
    ssd,
    switch,
    t5,
    transformer_xl,
    unet,
    vit,
    wavenet,
)
from gopt.workloads.base import Tree, Workload


class Tiny(NamedTuple):
    """A workload that takes a moment to compile, and what is expected of it."""

    make: partial[Workload]
    outputs: list[tuple[int, ...]]  # shapes of what the model returns
    targets: list[tuple[int, ...]]  # shapes of what the loss compares with
    integers: tuple[int, int] = (0, 2)  # from, to: valid as all of its integer inputs and targets


_transformer: dict[str, Any] = {"batch": 2, "layers": 2, "hidden": 16, "heads": 2, "inner": 24}
_language: dict[str, Any] = {"batch": 2, "vocabulary": 11}
_transformer_xl = partial(transformer_xl, **_transformer, vocabulary=11, length=4, memory=3)

TINY = {
    "inception_v3": Tiny(partial(inception_v3, batch=2, size=75), [(2, 1000)], [(2,)]),
    "resnext": Tiny(
        partial(resnext, batch=2, size=33, blocks=(1, 2), groups=4, width=2), [(2, 1000)], [(2,)]
    ),
    "squeezenet": Tiny(partial(squeezenet, batch=2, size=31), [(2, 1000)], [(2,)]),
    "unet": Tiny(partial(unet, batch=2, size=44, depth=2, width=4), [(2, 4, 4, 2)], [(2, 4, 4)]),
    "nasnet_a": Tiny(
        partial(nasnet_a, batch=2, size=35, cells=1, filters=192, stem=8), [(2, 1000)], [(2,)]
    ),
    "amoebanet": Tiny(
        partial(amoebanet, batch=2, size=35, cells=1, filters=36, stem=8), [(2, 1000)], [(2,)]
    ),
    "randwire": Tiny(
        partial(randwire, batch=2, size=33, stages=2, nodes=6, width=4), [(2, 1000)], [(2,)]
    ),
    "densenet": Tiny(
        partial(densenet, batch=2, size=29, blocks=(1, 2, 1, 1), growth=4), [(2, 1000)], [(2,)]
    ),
    "mobilenet_v2": Tiny(
        partial(mobilenet_v2, batch=2, size=33, blocks=(1, 2, 1, 1, 1, 1, 1)), [(2, 1000)], [(2,)]
    ),
    "efficientnet": Tiny(
        partial(efficientnet, batch=2, size=33, blocks=(1, 2, 1, 1, 1, 1, 1)), [(2, 1000)], [(2,)]
    ),
    "mnasnet": Tiny(
        partial(mnasnet, batch=2, size=33, blocks=(1, 2, 1, 1, 1, 1, 1)), [(2, 1000)], [(2,)]
    ),
    "shufflenet_v2": Tiny(
        partial(shufflenet_v2, batch=2, size=33, blocks=(1, 2), width=8), [(2, 1000)], [(2,)]
    ),
    "hrnet": Tiny(
        partial(hrnet, batch=2, size=32, width=4, modules=(1, 1), blocks=1), [(2, 1000)], [(2,)]
    ),
    "ssd": Tiny(
        partial(ssd, batch=2, size=268, blocks=(1, 1, 1, 1, 1), width=4, classes=3),
        [(2, 7034, 4), (2, 7034, 3)],
        [(2, 7034, 4), (2, 7034)],
        (0, 3),
    ),
    "mlp_mixer": Tiny(
        partial(
            mlp_mixer,
            batch=2,
            size=12,
            patch=4,
            layers=2,
            hidden=16,
            patches_inner=6,
            channels_inner=8,
        ),
        [(2, 1000)],
        [(2,)],
    ),
    "vit": Tiny(partial(vit, **_transformer, size=12, patch=4), [(2, 1000)], [(2,)]),
    "bert": Tiny(
        partial(bert, **_transformer, length=6, predictions=3, positions=8, vocabulary=11),
        [(2, 3, 11), (2, 2)],
        [(2, 3), (2,)],
    ),
    "gpt2": Tiny(
        partial(gpt2, **_transformer, length=6, positions=8, vocabulary=11), [(2, 6, 11)], [(2, 6)]
    ),
    "transformer_xl": Tiny(_transformer_xl, [(2, 4, 11), (2, 3, 16), (2, 3, 16)], [(2, 4)]),
    "transformer_xl_adaptive": Tiny(
        partial(_transformer_xl, cutoffs=(4, 7)), [(2, 4, 11), (2, 3, 16), (2, 3, 16)], [(2, 4)]
    ),
    "t5": Tiny(
        partial(t5, **_transformer, source_length=6, target_length=5, width=6, vocabulary=11),
        [(2, 5, 11)],
        [(2, 5)],
    ),
    "switch": Tiny(
        partial(
            switch,
            **_transformer,
            source_length=8,
            target_length=6,
            width=6,
            experts=3,
            vocabulary=11,
        ),
        [(2, 6, 11), ()],
        [(2, 6)],
        (1, 4),
    ),
    "conformer": Tiny(
        partial(
            conformer,
            batch=2,
            length=24,
            text_length=2,
            layers=2,
            hidden=8,
            heads=2,
            kernel=4,
            vocabulary=3,
        ),
        [(2, 6, 4)],
        [(2, 2)],
        (1, 4),  # zero is the blank, which no text has
    ),
    "rnnlm": Tiny(
        partial(rnnlm, **_language, length=4, layers=2, hidden=8),
        [(2, 4, 11), *[(2, 8)] * 4],
        [(2, 4)],
    ),
    "gnmt": Tiny(
        partial(gnmt, **_language, source_length=3, target_length=4, layers=3, hidden=8),
        [(2, 4, 11)],
        [(2, 4)],
    ),
    "mamba": Tiny(
        partial(mamba, **_language, length=6, chunk=3, layers=2, hidden=16),
        [(2, 6, 11)],
        [(2, 6)],
        (1, 4),
    ),
    "wavenet": Tiny(
        partial(
            wavenet, batch=2, length=24, stacks=2, layers=4, channels=8, bands=5, upsampling=(2, 3)
        ),
        [(2, 24, 2)],
        [(2, 24)],
    ),
    "dlrm": Tiny(
        partial(dlrm, batch=4, numbers=5, rows=(9, 2, 30), width=6, bottom=(8, 7), top=(10,)),
        [(4,)],
        [(4,)],
    ),
    "deeprank": Tiny(
        partial(
            deeprank,
            batch=4,
            terms=3,
            contexts=2,
            window=5,
            width=6,
            kernels=2,
            hidden=3,
            vocabulary=11,
        ),
        [(4,)],
        [(2,)],
    ),
    "graph_network": Tiny(
        partial(graph_network, nodes=7, edges=12, steps=3, hidden=8), [(7, 2)], [(7, 2)], (0, 7)
    ),
    "random_network": Tiny(
        partial(random_network, batch=2, length=8, width=6, layers=9, seed=4), [(2, 100)], [(2,)]
    ),
}


def random_like(seed: int, tree: Tree, integers: tuple[int, int] = (0, 2)) -> Tree:
    """Random arrays of these shapes: weights that keep activations near one, valid integers."""
    rng = np.random.default_rng(seed)

    def draw(path: tuple[Any, ...], x: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(rng.integers(*integers, x.shape).astype(x.dtype))
        noise = rng.standard_normal(x.shape, np.float32)
        match getattr(path[-1], "key", None) if path else None:
            case "kernel":
                values = np.sqrt(3 / np.prod(x.shape[:-1])) * noise
            case "scale":
                values = 1 + noise / 4
            case "var":
                values = 1 + np.abs(noise) / 2
            case "bias" | "mean":
                values = noise / 10
            case None:  # an input or a target
                values = noise
            case _:
                values = noise / 2
        return jnp.asarray(values.astype(x.dtype))

    return jax.tree_util.tree_map_with_path(draw, tree)


class Traced(NamedTuple):
    """A tiny workload, its forward pass, traced from shapes alone, and its training step."""

    workload: Workload
    apply: Any  # the jitted forward pass
    step: Any  # the jitted training step
    forward_trace: jax.stages.Traced
    step_shapes: tuple[Tree, ...]  # of the arguments of the step
    allocated: int  # bytes of the arrays that making and tracing it left behind


# What is run once, on a few numbers, is not worth the time of an optimising compiler.
_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@cache
def traced(name: str) -> Traced:
    """The tiny workload of a name, its forward pass traced."""
    known = {id(x) for x in jax.live_arrays()}
    workload = TINY[name].make()
    (forward, shapes), (step, step_shapes) = workload.forward(), workload.train_step()
    apply, step = _jit(forward), _jit(step)
    trace = apply.trace(*shapes)
    return Traced(workload, apply, step, trace, step_shapes, _allocated(known))


def _allocated(known: set[int]) -> int:
    """Bytes of the arrays that are none of those with these ids."""
    return sum(x.nbytes for x in jax.live_arrays() if id(x) not in known)


class TracedStep(NamedTuple):
    """The training step of a tiny workload, traced from shapes alone."""

    trace: jax.stages.Traced
    allocated: int  # bytes of the arrays that tracing it left behind


@cache
def traced_step(name: str) -> TracedStep:
    """The training step of a tiny workload, which most tests do not need, traced."""
    tiny = traced(name)
    known = {id(x) for x in jax.live_arrays()}
    trace = tiny.step.trace(*tiny.step_shapes)
    return TracedStep(trace, _allocated(known))


class Compiled(NamedTuple):
    """A forward pass with one set of random weights and inputs."""

    apply: Callable[..., Tree]
    variables: Tree
    inputs: tuple[Tree, ...]


@cache
def compiled(name: str) -> Compiled:
    """The jitted forward pass of a tiny workload, with random weights and inputs."""
    apply, (variables, _, inputs, _) = traced(name).apply, traced(name).step_shapes
    return Compiled(apply, random_like(0, variables), random_like(1, inputs, TINY[name].integers))


class Stepped(NamedTuple):
    """What a training step returns, and the targets that it was given."""

    variables: Tree
    gradients: Tree  # the momentum after the first step
    loss: jax.Array
    targets: Tree


@cache
def stepped(name: str) -> Stepped:
    """One step of a tiny workload from `compiled(name)`, without momentum before."""
    _, variables, inputs = compiled(name)
    _, momentum, _, targets = traced(name).step_shapes
    momentum = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), momentum)
    targets = random_like(2, targets, TINY[name].integers)
    after, gradients, loss = traced(name).step(variables, momentum, inputs, targets)
    return Stepped(after, gradients, loss, targets)


def random_module(module: nn.Module, *shapes: tuple[int, ...]) -> tuple[Tree, Tree, Tree]:
    """Random variables and float inputs of these shapes for a module, and its output."""
    inputs = random_like(0, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
    variables = random_like(1, jax.eval_shape(module.init, jax.random.key(0), *inputs))
    output = module.apply(variables, *inputs)
    return jax.tree.map(np.asarray, (variables, inputs, output))
