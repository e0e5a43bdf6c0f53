"""DeepRank: relevance of a document, from the words around each occurrence of a query term.

Pang et al., DeepRank: A New Deep Architecture for Relevance Ranking in Information Retrieval,
arXiv:1710.05649, with the convolutional measure network. The configuration is the authors' for
LETOR 4.0 (pl8787/textnet-model, letor.deeprank.pyramid.config): up to 20 query terms with 20
contexts of 11 words each, and 193 367 words of width 50. It has four kernels, and recurrent
networks of width three in both directions. The authors publish no number of parameters. Ours has 9
862 098, all but 381 in the tables of words and of their importance.

Like the authors' other program (pl8787/DeepRank_PyTorch), it departs from that configuration in
three ways. The last layer reads the sum over the query's terms, as in the paper, without a ReLU
before it. A position p counts as 1 / (p + 1). Missing contexts are padding, read like others. Our
choice: both tables are trained, whereas the authors fix pretrained vectors and inverse document
frequencies.

The windows of a document that are contexts depend on its words: the model excludes their search.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from gopt.workloads.base import Workload, tokens
from gopt.workloads.layers import check_at_least
from gopt.workloads.sequential.recurrent import GRUCell, unroll


class Measure(nn.Module):
    """Local relevance: one convolution over all pairs of a query word and a context word.

    Attributes:
      kernels: number of kernels; each contributes its largest output in a context.
    """

    kernels: int

    @nn.compact
    def __call__(self, query: jax.Array, contexts: jax.Array) -> jax.Array:
        """Return `[batch, terms, contexts, kernels]`.

        Args:
          query: embedded words of the query, `[batch, terms, width]`.
          contexts: embedded words around each position, `[batch, terms, contexts, window, width]`.
        """
        products = jnp.einsum("bqw,btckw->btcqk", query, contexts)
        # One number per word, constant along its row or column of pairs.
        rows = nn.Dense(1, use_bias=False, name="query")(query)[:, None, None]
        columns = nn.Dense(1, use_bias=False, name="context")(contexts).swapaxes(-1, -2)
        pairs = jnp.stack(jnp.broadcast_arrays(products, rows, columns), axis=-1)
        signals = nn.Conv(self.kernels, (3, 3))(pairs)
        return nn.leaky_relu(signals.max(axis=(-3, -2)), 0.2)


class Aggregation(nn.Module):
    """Global relevance: a recurrent network over each term's contexts, then a weighted sum.

    Attributes:
      hidden: width of the recurrent network of each direction.
    """

    hidden: int

    @nn.compact
    def __call__(self, contexts: jax.Array, weights: jax.Array) -> jax.Array:
        """Return scores `[batch]`.

        Args:
          contexts: features of each term's contexts, by position, `[batch, terms, contexts,
            features]`.
          weights: weights of the terms, `[batch, terms]`.
        """
        steps = list(jnp.unstack(contexts, axis=2))
        start = jnp.zeros((*weights.shape, self.hidden), jnp.float32)
        ahead, _ = unroll(GRUCell(self.hidden, name="forward"), start, steps)
        behind, _ = unroll(GRUCell(self.hidden, name="backward"), start, steps[::-1])
        terms = jnp.concatenate([ahead, behind], axis=-1)
        return nn.Dense(1)(jnp.einsum("bt,bth->bh", weights, terms))[:, 0]


class DeepRank(nn.Module):
    """Embeddings, the measure network and the aggregation network.

    Attributes:
      vocabulary: number of words.
      width: width of the embedding.
      kernels: number of kernels of the convolution.
      hidden: width of the recurrent network of each direction.
    """

    vocabulary: int
    width: int
    kernels: int
    hidden: int

    @nn.compact
    def __call__(self, query: jax.Array, contexts: jax.Array, positions: jax.Array) -> jax.Array:
        """Return scores `[batch]` of documents.

        Args:
          query: words of the query, `[batch, terms]`.
          contexts: words around the positions of query terms in the document, `[batch, terms,
            contexts, window]`.
          positions: these positions, counted from 0 and rising, `[batch, terms, contexts]`.
        """
        words = nn.Embed(self.vocabulary, self.width, name="words")
        local = Measure(self.kernels)(words(query), words(contexts))
        nearness = 1 / (positions[..., None] + 1)
        weights = nn.softmax(nn.Embed(self.vocabulary, 1, name="importance")(query)[..., 0])
        return Aggregation(self.hidden)(jnp.concatenate([local, nearness], axis=-1), weights)


def hinge(scores: Shaped[jax.Array, " 2*pairs"], better: Shaped[jax.Array, " pairs"]) -> jax.Array:
    """Return the mean over pairs of max(0, 1 - s⁺ + s⁻), s⁺ the better document's score.

    Args:
      scores: scores of both documents of each pair in turn, `[2 · pairs]`.
      better: index of the better document, 0 or 1, `[pairs]`.
    """
    first, second = jnp.unstack(scores.reshape(-1, 2), axis=1)
    lead = jnp.where(better == 0, first - second, second - first)
    return nn.relu(1 - lead).mean()


def deeprank(
    *,
    batch: int = 200,
    terms: int = 20,
    contexts: int = 20,
    window: int = 11,
    width: int = 50,
    kernels: int = 4,
    hidden: int = 3,
    vocabulary: int = 193_367,
) -> Workload:
    """Return the ranking model; the defaults are the authors' for LETOR 4.0.

    Args:
      batch: number of documents, each with its query; the loss compares consecutive pairs.
      terms: number of words of a query.
      contexts: number of windows of a document per term; as many steps are unrolled.
      window: number of words of a context.
      width: width of the embedding.
      kernels: number of kernels of the convolution.
      hidden: width of the recurrent network of each direction.
      vocabulary: number of words.

    Raises:
      ValueError: `batch` is odd, or a size is smaller than 1.
    """
    if batch < 2 or batch % 2:
        raise ValueError(f"batch: expected a positive even number, got {batch}")
    check_at_least(1, terms=terms, contexts=contexts, window=window, width=width)
    check_at_least(1, kernels=kernels, hidden=hidden, vocabulary=vocabulary)
    return Workload(
        name=f"deeprank-{terms}x{contexts}",
        module=DeepRank(vocabulary, width, kernels, hidden),
        inputs=(
            tokens(batch, terms),
            jax.ShapeDtypeStruct((batch, terms, contexts, window), jnp.int32),
            jax.ShapeDtypeStruct((batch, terms, contexts), jnp.int32),
        ),
        loss=hinge,
        targets=jax.ShapeDtypeStruct((batch // 2,), jnp.int32),
    )
