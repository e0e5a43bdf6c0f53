"""Switch Transformer: T5 with a mixture of experts in every other feed-forward layer.

Fedus, Zoph and Shazeer, Switch Transformers: Scaling to Trillion Parameter Models with Simple and
Efficient Sparsity, arXiv:2101.03961, Switch-Base with 8 experts. The released checkpoint
`google/switch-base-8` has 619 339 008 parameters, and ours has exactly this number.

Tokens are dispatched to experts by products with a mask, as in appendix F. Each text is its own
group, in which an expert has a fixed capacity. Texts fill their lengths, so padding is not masked.
Noise on the router's inputs is not applied.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload, cross_entropy, text_to_text
from gopt.workloads.layers import check_at_least, check_sizes
from gopt.workloads.norms import RMSNorm
from gopt.workloads.transformers.text_to_text import (
    Block,
    BlockSizes,
    ModelSizes,
    StackSizes,
    attend_in_turn,
)


class Experts(nn.Module):
    """Feed-forward networks; each token passes through the router's first choice.

    Attributes:
      experts: number of networks.
      inner: width of each network.
      capacity: number of tokens of one text that an expert takes, first come, first served; the
        output of excess tokens is zero.
    """

    experts: int
    inner: int
    capacity: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return `[batch, length, hidden]`, and the imbalance of the experts.

        The imbalance is 1 if all experts are used equally. It is the number of experts if all
        tokens go to one with certainty (equations 4 to 6).
        """
        hidden = x.shape[-1]
        chances = nn.softmax(nn.Dense(self.experts, use_bias=False, name="router")(x))
        chosen = nn.one_hot(chances.argmax(axis=-1), self.experts)
        used = chosen.mean(axis=1) * chances.mean(axis=1)
        imbalance = self.experts * used.sum(axis=-1).mean()

        # Position in the queue of the chosen expert; -1, which one_hot leaves out, for all others.
        place = (jnp.cumsum(chosen, axis=1) * chosen).astype(jnp.int32) - 1
        mask = nn.one_hot(place, self.capacity)
        gate = chances.max(axis=-1)[..., None, None]

        init = nn.initializers.lecun_normal(batch_axis=0)
        enter = self.param("enter", init, (self.experts, hidden, self.inner))
        leave = self.param("leave", init, (self.experts, self.inner, hidden))
        sent = jnp.einsum("blec,blh->ebch", mask, x)
        made = jnp.einsum("ebch,ehi->ebci", sent, enter)
        made = jnp.einsum("ebci,eih->ebch", nn.relu(made), leave)
        return jnp.einsum("blec,ebch->blh", mask * gate, made), imbalance


class SparseBlock(BlockSizes):
    """A T5 block with experts as its feed-forward network.

    Attributes:
      experts: number of experts.
      capacity: number of tokens of one text that an expert takes.
    """

    experts: int
    capacity: int

    @nn.compact
    def __call__(
        self, x: jax.Array, bias: jax.Array, memory: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return `[batch, length, hidden]`, and the imbalance of the experts."""
        x = attend_in_turn(x, bias, memory, heads=self.heads, width=self.width)
        made, imbalance = Experts(self.experts, self.inner, self.capacity)(RMSNorm()(x))
        return x + made, imbalance


class Stack(StackSizes):
    """T5's encoder or decoder, with experts in every other block; attributes as in `Switch`."""

    experts: int
    capacity_factor: float

    @nn.compact
    def __call__(
        self, x: jax.Array, memory: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return `[batch, length, hidden]`, and the summed imbalance of the experts."""
        length, size = x.shape[1], (self.heads, self.width, self.inner)
        capacity = math.ceil(self.capacity_factor * length / self.experts)
        bias = self.position_bias(length, causal=memory is not None)
        imbalances = []
        for index in range(self.layers):
            if index % 2 == 0:
                x = Block(*size)(x, bias, memory)
            else:
                x, imbalance = SparseBlock(*size, self.experts, capacity)(x, bias, memory)
                imbalances.append(imbalance)
        return RMSNorm()(x), jnp.stack(imbalances).sum()


class Switch(ModelSizes):
    """T5 with experts in every other block.

    Attributes:
      experts: number of experts of a sparse block.
      capacity_factor: capacity of all experts together, per token.
    """

    experts: int
    capacity_factor: float

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits of the next target token, and the imbalance of the experts.

        The logits are `[batch, target length, vocabulary]`. The imbalance is a scalar, the sum over
        all layers.
        """
        embed = nn.Embed(self.vocabulary, self.hidden, name="words")
        size = (self.layers, self.heads, self.width, self.inner, self.experts)
        memory, encoding = Stack(*size, self.capacity_factor, name="encoder")(embed(source))
        x, decoding = Stack(*size, self.capacity_factor, name="decoder")(embed(target), memory)
        return embed.attend(x * self.hidden**-0.5), encoding + decoding


def _loss(outputs: Tree, targets: Tree) -> jax.Array:
    logits, imbalance = outputs
    return cross_entropy(logits, targets) + 0.01 * imbalance


def switch(
    *,
    batch: int = 8,
    source_length: int = 512,
    target_length: int = 114,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    width: int = 64,
    inner: int = 3072,
    experts: int = 8,
    capacity_factor: float = 1.25,
    vocabulary: int = 32_128,
) -> Workload:
    """Return the sparse text-to-text model; the defaults are Switch-Base with 8 experts.

    A batch has `batch` pairs of texts, of `source_length` and `target_length` tokens: 512 in the
    published pre-training, and 114, which span corruption of 512 leaves. The other arguments are
    the attributes of `Switch`.

    Raises:
      ValueError: there are fewer than 2 layers, so that none is sparse; another argument is smaller
        than 1; or the capacity factor is not positive.
    """
    module = Switch(vocabulary, layers, hidden, heads, width, inner, experts, capacity_factor)
    check_at_least(2, layers=layers)
    check_sizes(module, batch=batch, source_length=source_length, target_length=target_length)
    if not capacity_factor > 0:
        raise ValueError(f"capacity_factor: expected more than 0, got {capacity_factor}")
    sizes = batch, source_length, target_length
    return text_to_text(f"switch-{layers}-{experts}", module, *sizes, loss=_loss)
