"""A causal transformer in plain JAX, as a training step with AdamW."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

HEADS = 4
VOCABULARY = 1000


def transformer_step(
    wrap_block: Wrap, wrap_loss: Wrap, *, layers: int, width: int, batch: int, length: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a training step and the shapes of its arguments; the first two are consumed.

    Args:
      wrap_block: maps the function of a block, such as `jax.checkpoint`.
      wrap_loss: maps the loss as a function of the parameters and the tokens.
      layers: number of blocks.
      width: width of the residual stream; the feed-forward network is four times as wide.
      batch: number of sequences.
      length: tokens in a sequence.
    """
    optimizer = optax.adamw(1e-3)

    def block(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        h = _norm(x, *p["norm 1"])
        q, k, v = (h @ p[name] for name in ("query", "key", "value"))
        q, k, v = (part.reshape(batch, length, HEADS, -1) for part in (q, k, v))
        scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / (width // HEADS) ** 0.5
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, -1e9)
        mixed = jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores), v)
        x = x + mixed.reshape(x.shape) @ p["out"]
        return x + jax.nn.gelu(_norm(x, *p["norm 2"]) @ p["up"]) @ p["down"]

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["words"][tokens] + params["places"]
        for p in params["blocks"]:
            x = wrap_block(block)(p, x)
        logits = _norm(x, *params["norm"]) @ params["words"].T
        each = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
        return each.mean()

    def step(params: Any, state: Any, tokens: jax.Array) -> Any:
        value, grads = jax.value_and_grad(wrap_loss(loss))(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    def floats(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    square, norm = floats(width, width), (floats(width), floats(width))
    one: dict[str, Any] = dict.fromkeys(("query", "key", "value", "out"), square)
    one |= {"up": floats(width, 4 * width), "down": floats(4 * width, width)}
    one |= {"norm 1": norm, "norm 2": norm}
    params = {
        "words": floats(VOCABULARY, width),
        "places": floats(length, width),
        "blocks": [one] * layers,
        "norm": norm,
    }
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return step, (params, jax.eval_shape(optimizer.init, params), tokens)


def _norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias
