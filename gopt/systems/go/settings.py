"""Settings of GO: sizes of its policy, how it searches, how it is trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Sizes and settings, all our choice where the paper does not give them.

    Attributes:
      width: size of the embedding of an op.
      rounds: of GraphSAGE.
      layers: of segment-recurrent attention over all ops, for all tasks.
      heads: of attention.
      segment: ops in a segment.
      levels: how many groups of ops there are at most, from coarse to fine.
      changes: how many groups of a level a decision changes on average, before it is trained.
      samples: decisions that are drawn at each level in an iteration, `S`.
      hinge: share of the cost by which a decision is worse, from which on it counts no worse.
      quiet: difference of rewards that counts for little in training.
      clip: of the ratio of probabilities, in PPO.
      entropy: weight of the entropy of the moves, in PPO.
      epochs: steps on each batch, in PPO.
      learning_rate: of Adam.
      norm: to which the gradient is clipped.
    """

    width: int = 64
    rounds: int = 2
    layers: int = 1
    heads: int = 4
    segment: int = 128
    levels: tuple[int, ...] = (64, 256, 1024)
    changes: float = 1.5
    samples: int = 8
    hinge: float = 0.02
    quiet: float = 1e-4
    clip: float = 0.2
    entropy: float = 0.01
    epochs: int = 2
    learning_rate: float = 1e-3
    norm: float = 0.5
