"""A norm of several sequence models."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class RMSNorm(nn.Module):
    """Division by the root mean square, and a scale; Flax's version also subtracts a zero mean.

    Attributes:
      epsilon: number added to the mean square.
    """

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[..., hidden]`, like `x`."""
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        mean = jnp.square(x).mean(axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(mean + self.epsilon) * scale
