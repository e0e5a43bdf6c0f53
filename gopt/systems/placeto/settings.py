"""Settings of Placeto: sizes of its network, how long it trains, and how."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Sizes and settings, as published but for `groups`, `steps`, `episodes` and `entropy`.

    Attributes:
      groups: how many groups of ops there are at most.
      rounds: of message passing, each way.
      steps: steps of training, over which the learning rate and the entropy fall.
      episodes: that are played at once in a step of training.
      memory: how many steps the baseline is the mean of, that which is taken included.
      entropy: weight of the entropy of decisions at first; it falls to nothing, in equal steps.
      failing: what a placement without a finite cost counts, in costs of the first placement.
      learning_rate: of Adam, at first.
      last_rate: of Adam, in the end; it falls in equal steps.
      norm: to which the gradient is clipped.
    """

    groups: int = 64
    rounds: int = 8
    steps: int = 100
    episodes: int = 1
    memory: int = 10
    entropy: float = 0.1
    failing: float = 100.0
    learning_rate: float = 1e-3
    last_rate: float = 1e-4
    norm: float = 1.25

    def __post_init__(self) -> None:
        for name in ("groups", "rounds", "steps", "episodes", "memory"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")
        if self.entropy < 0:
            raise ValueError(f"entropy is {self.entropy}: expected 0 at least")
        for name in ("failing", "learning_rate", "last_rate", "norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected more than 0")
