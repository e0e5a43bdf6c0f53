"""Settings of Placeto: sizes of its network, and training."""

from dataclasses import dataclass

from gopt.learning.settings import MAX_LAYERS, MAX_SIZE, check_numbers


@dataclass(frozen=True)
class Settings:
    """Sizes and settings, as published except `groups`, `steps`, `episodes` and `entropy`.

    Attributes:
      groups: largest number of groups of ops.
      rounds: rounds of message passing, each way.
      steps: steps of training, over which the learning rate and the entropy weight fall.
      episodes: episodes played at once in a step of training.
      memory: number of steps that the baseline averages over, the current one included.
      entropy: initial weight of the entropy of decisions, decayed linearly to 0.
      infeasible_cost: cost of a placement without a finite cost, as a multiple of the cost of the
        first placement.
      learning_rate: initial Adam learning rate.
      last_rate: final Adam learning rate, reached linearly.
      max_gradient_norm: largest global norm of the gradient, which is clipped to it.
    """

    groups: int = 64
    rounds: int = 8
    steps: int = 100
    episodes: int = 1
    memory: int = 10
    entropy: float = 0.1
    infeasible_cost: float = 100.0
    learning_rate: float = 1e-3
    last_rate: float = 1e-4
    max_gradient_norm: float = 1.25

    def __post_init__(self) -> None:
        check_numbers(self, "rounds", at_least=1, at_most=MAX_LAYERS)
        check_numbers(self, "groups", at_least=1, at_most=MAX_SIZE)
        check_numbers(self, "steps", "episodes", "memory", at_least=1)
        check_numbers(self, "entropy", at_least=0)
        check_numbers(
            self, "infeasible_cost", "learning_rate", "last_rate", "max_gradient_norm", above=0
        )
