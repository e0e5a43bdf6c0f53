"""RNNLM: the LSTM language model of Zaremba, Sutskever and Vinyals, unrolled over time.

Recurrent Neural Network Regularization, arXiv:1409.2329, section 4.1, on the Penn Treebank. The
large model, the default, has 2 layers of 1500 and 66 M parameters. The medium one has 2 layers of
650 and 20 M, in whole millions (Merity et al. 2017, arXiv:1609.07843, table 2). Ours have 66 022
000 and 19 775 200.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload, cross_entropy, tokens
from gopt.workloads.layers import check_at_least
from gopt.workloads.sequential.recurrent import LSTMCell, unroll


class RNNLM(nn.Module):
    """Embedding, a stack of LSTM layers, and an untied softmax.

    Attributes:
      vocabulary: number of words.
      layers: number of LSTM layers.
      hidden: width of the embedding and of each layer.
    """

    vocabulary: int
    layers: int
    hidden: int

    @nn.compact
    def __call__(
        self, token_ids: jax.Array, *state: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Return logits `[batch, length, vocabulary]` and the state for the next segment.

        Args:
          token_ids: tokens, int32 `[batch, length]`.
          *state: cell and hidden state of each layer in turn, `[batch, hidden]` each.
        """
        steps = list(jnp.unstack(nn.Embed(self.vocabulary, self.hidden)(token_ids), axis=1))
        last: list[jax.Array] = []
        for layer in range(self.layers):
            carry = state[2 * layer], state[2 * layer + 1]
            carry, steps = unroll(LSTMCell(self.hidden), carry, steps)
            last.extend(carry)
        return nn.Dense(self.vocabulary)(jnp.stack(steps, axis=1)), tuple(last)


def _loss(outputs: Tree, targets: Tree) -> jax.Array:
    logits, _ = outputs
    return cross_entropy(logits, targets)


def rnnlm(
    *,
    batch: int = 20,
    length: int = 35,
    layers: int = 2,
    hidden: int = 1500,
    vocabulary: int = 10_000,
) -> Workload:
    """Return the LSTM language model; the defaults are the large model of arXiv:1409.2329.

    A batch has `batch` sequences, unrolled for `length` steps. The other arguments are the
    attributes of `RNNLM`.

    Raises:
      ValueError: `length` or `layers` is not positive.
    """
    check_at_least(1, length=length, layers=layers)
    state = jax.ShapeDtypeStruct((batch, hidden), jnp.float32)
    return Workload(
        name=f"rnnlm-{layers}",
        module=RNNLM(vocabulary, layers, hidden),
        inputs=(tokens(batch, length), *[state] * (2 * layers)),
        loss=_loss,
        targets=tokens(batch, length),
    )
