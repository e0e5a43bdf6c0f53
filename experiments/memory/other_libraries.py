"""Models of other libraries as training steps: an Equinox and a Flax NNX model."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.memory.transformer import Wrap


def equinox_step(
    wrap_block: Wrap, wrap_loss: Wrap, *, depth: int = 8, width: int = 256, batch: int = 4096
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a training step of residual layers in Equinox; needs the extra `peers`."""
    import equinox as eqx

    class Network(eqx.Module):
        norms: list[Any]
        layers: list[Any]

        def __call__(self, x: jax.Array) -> jax.Array:
            for norm, layer in zip(self.norms, self.layers, strict=True):
                x = wrap_block(_residual)(norm, layer, x)
            return x

    def _residual(norm: Any, layer: Any, x: jax.Array) -> jax.Array:
        return x + jax.nn.silu(layer(norm(x)))

    def make(key: jax.Array) -> Any:
        keys = jax.random.split(key, depth)
        layers = [eqx.nn.Linear(width, width, key=k) for k in keys]
        return Network([eqx.nn.LayerNorm(width) for _ in keys], layers)

    network = eqx.filter_eval_shape(make, jax.random.key(0))
    arrays, static = eqx.partition(network, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    params, structure = jax.tree.flatten(arrays)
    optimizer = optax.adam(1e-3)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        model = eqx.combine(jax.tree.unflatten(structure, params), static)
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(wrap_loss(loss))(params, x, y)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    data = jax.ShapeDtypeStruct((batch, width), jnp.float32)
    return step, (params, jax.eval_shape(optimizer.init, params), data, data)


def nnx_step(
    wrap_block: Wrap, wrap_loss: Wrap, *, layers: int = 6, width: int = 64, batch: int = 16
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a training step of residual convolutions in Flax NNX."""
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.first = nnx.Conv(width, width, (3, 3), rngs=rngs)
            self.second = nnx.Conv(width, width, (3, 3), rngs=rngs)
            self.norm = nnx.LayerNorm(width, rngs=rngs)

    class Network(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.stem = nnx.Conv(3, width, (3, 3), rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(layers)])
            self.head = nnx.Linear(width, 10, rngs=rngs)

    definition, params = nnx.split(nnx.eval_shape(lambda: Network(nnx.Rngs(0))))
    blocks = [nnx.split(block)[0] for block in nnx.merge(definition, params).blocks]
    optimizer = optax.adam(1e-3)

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        model = nnx.merge(definition, params)
        x = model.stem(images)
        for graph, block in zip(blocks, model.blocks, strict=True):

            def run(state: Any, x: jax.Array, graph: Any = graph) -> jax.Array:
                block = nnx.merge(graph, state)
                return x + block.second(jax.nn.gelu(block.first(block.norm(x))))

            x = wrap_block(run)(nnx.state(block), x)
        logits = model.head(x.mean((1, 2)))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        value, grads = jax.value_and_grad(wrap_loss(loss))(params, images, labels)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    images = jax.ShapeDtypeStruct((batch, 32, 32, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return step, (params, jax.eval_shape(optimizer.init, params), images, labels)
