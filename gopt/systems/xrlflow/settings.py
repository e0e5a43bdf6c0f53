"""Settings of the agent and of its training."""

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from gopt.learning.settings import (
    MAX_LAYERS,
    MAX_SIZE,
    check_choice,
    check_numbers,
)


@dataclass(frozen=True)
class Settings:
    """Settings of the network, of episodes, and of PPO.

    Attributes:
      width: size of the embedding of a node.
      layers: attention layers; also the number of edges that a message travels.
      summary: size of the embedding of a whole graph.
      hidden: widths of the hidden layers of actor and critic.
      sizes: encoding of the axes of arrays: "linear", as shares of `largest`, as in the paper; or
        "log", as log(1 + size) / log(1 + `largest`).
      largest: scale of the sizes of axes, M of the paper.
      pooling: "whole", for each graph the sum of its nodes, as in the paper; or "difference", that
        sum minus the program's, and the mean of the program's nodes.
      hints: whether the network reads the cost of candidates by a model; not in the paper.
      head: "shared", which scores each candidate by itself; or "flat", which reads `slots` of them
        side by side, as the code of the paper does, and cannot choose others.
      slots: number of slots of a flat head.
      every: rewrites between measurements, N of the paper.
      horizon: largest number of rewrites in an episode.
      bonus: reward of rewrites after which nothing is measured.
      discount: discount of rewards, γ.
      trace: decay of generalised advantages, λ.
      clip: PPO clip of the ratio of probabilities, ε.
      critic: weight of the error of values, c1 of the paper.
      entropy: weight of the entropy, c2.
      episodes: episodes between updates.
      epochs: largest number of passes over the drawn decisions.
      batch: decisions in a step of the optimizer.
      divergence: largest divergence from the policy that drew the decisions, in nats; beyond it,
        epochs end.
      learning_rate: Adam learning rate.
      unit: unit of values, in rewards: the network predicts multiples of it.
    """

    width: int = 64
    layers: int = 5
    summary: int = 32
    hidden: tuple[int, ...] = (256, 64)
    sizes: Literal["linear", "log"] = "log"
    largest: float = 4096.0
    pooling: Literal["whole", "difference"] = "difference"
    hints: bool = True
    head: Literal["shared", "flat"] = "shared"
    slots: int = 500
    every: int = 5
    horizon: int = 100
    bonus: float = 0.1
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.2
    critic: float = 0.5
    entropy: float = 0.01
    episodes: int = 10
    epochs: int = 4
    batch: int = 16
    divergence: float = 0.05
    learning_rate: float = 5e-4
    unit: float = 10.0

    def __post_init__(self) -> None:
        check_numbers(self, "layers", at_least=1, at_most=MAX_LAYERS)
        check_numbers(self, "width", "summary", "slots", at_least=1, at_most=MAX_SIZE)
        check_numbers(self, "every", "horizon", "episodes", "epochs", "batch", at_least=1)
        if not 1 <= len(self.hidden) <= MAX_LAYERS or not all(
            1 <= width <= MAX_SIZE for width in self.hidden
        ):
            raise ValueError(f"hidden is {self.hidden}: expected widths in 1..{MAX_SIZE}")
        check_numbers(self, "discount", "trace", at_least=0, at_most=1)
        check_numbers(self, "largest", "clip", "divergence", "learning_rate", "unit", above=0)
        check_numbers(self, "critic", "entropy", "bonus", at_least=0)
        for name in ("sizes", "pooling", "head"):
            check_choice(self, name, get_args(get_type_hints(Settings)[name]))
