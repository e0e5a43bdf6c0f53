"""DLRM: a ranking model of numbers, embedded categories and their pairwise products.

Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation Systems,
arXiv:1906.00091. The configuration is from its section 5.1 for the Criteo Kaggle data, a benchmark
in the authors' program. The paper gives 540 M parameters. Ours has 540 677 217, of which 540 201
232 are in the 33 762 577 rows of the 26 tables.

Each category is one row of its table, so nothing is summed. A training step updates whole tables,
like all other parameters.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Shaped

from gopt.workloads.base import Workload, tokens
from gopt.workloads.layers import check_at_least

# Number of distinct values of each categorical feature in the Criteo Kaggle data.
KAGGLE = (
    *(1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194),
    *(27, 14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)


def interact(vectors: Shaped[jax.Array, "batch n width"]) -> jax.Array:
    """Return the products of all pairs of different vectors, `[batch, n (n - 1) / 2]`.

    Args:
      vectors: vectors `[batch, n, width]`; their pairs (i, j), j < i, come in lexicographic order.
    """
    batch, count, _ = vectors.shape
    products = jnp.einsum("biw,bjw->bij", vectors, vectors).reshape(batch, -1)
    pairs = np.flatnonzero(np.tri(count, k=-1))
    return jnp.take(products, pairs, axis=1, mode="clip")


class MLP(nn.Module):
    """Dense layers, each followed by a ReLU.

    Attributes:
      widths: width of each layer.
    """

    widths: Sequence[int]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, widths[-1]]`."""
        for width in self.widths:
            x = nn.relu(nn.Dense(width)(x))
        return x


class DLRM(nn.Module):
    """A bottom network and tables of vectors, and a top network that reads their products.

    Attributes:
      rows: number of rows of each table.
      width: width of all vectors.
      bottom: widths of the hidden layers of the bottom network.
      top: widths of the hidden layers of the top network.
    """

    rows: Sequence[int]
    width: int
    bottom: Sequence[int]
    top: Sequence[int]

    @nn.compact
    def __call__(self, numbers: jax.Array, categories: jax.Array) -> jax.Array:
        """Return the logit of a click, `[batch]`.

        Args:
          numbers: numerical features, float `[batch, numbers]`.
          categories: row in each table, int32 `[batch, tables]`; the last one if too large.
        """
        dense = MLP((*self.bottom, self.width), name="bottom")(numbers)
        vectors = [dense]
        for k, rows in enumerate(self.rows):
            table = self.param(f"table_{k}", nn.initializers.normal(0.01), (rows, self.width))
            vectors.append(jnp.take(table, categories[:, k], axis=0, mode="clip"))
        pairs = interact(jnp.stack(vectors, axis=1))
        x = MLP(self.top, name="top")(jnp.concatenate([dense, pairs], axis=1))
        return nn.Dense(1, name="click")(x)[:, 0]


def _loss(logits: jax.Array, clicks: jax.Array) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(logits, clicks).mean()


def dlrm(
    *,
    batch: int = 128,
    numbers: int = 13,
    rows: Sequence[int] = KAGGLE,
    width: int = 16,
    bottom: Sequence[int] = (512, 256, 64),
    top: Sequence[int] = (512, 256),
) -> Workload:
    """Return the ranking model; the defaults are for the Criteo Kaggle data.

    Args:
      batch: number of impressions in a batch.
      numbers: number of numerical features of an impression.
      rows: number of rows of each embedding table, one table per categorical feature.
      width: width of an embedding.
      bottom: widths of the hidden layers below the interaction; one more has `width`.
      top: widths of the hidden layers above the interaction; one more gives the logit.

    Raises:
      ValueError: `rows` is empty, or a size is smaller than 1.
    """
    check_at_least(1, batch=batch, numbers=numbers, width=width)
    if not rows:
        raise ValueError("rows: expected at least one table, got none")
    for field, sizes in (("rows", rows), ("bottom", bottom), ("top", top)):
        check_at_least(1, **{f"{field}[{k}]": size for k, size in enumerate(sizes)})
    return Workload(
        name=f"dlrm-{len(rows)}",
        module=DLRM(tuple(rows), width, tuple(bottom), tuple(top)),
        inputs=(jax.ShapeDtypeStruct((batch, numbers), jnp.float32), tokens(batch, len(rows))),
        loss=_loss,
        targets=jax.ShapeDtypeStruct((batch,), jnp.float32),
    )
