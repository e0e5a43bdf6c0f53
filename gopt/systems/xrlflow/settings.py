"""Settings of the agent and of its training."""

from dataclasses import dataclass
from math import inf
from numbers import Integral
from typing import Literal


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
        counts = ("width", "layers", "summary", "slots", "every", "horizon")
        for name in (*counts, "episodes", "epochs", "batch"):
            if not isinstance(getattr(self, name), Integral) or getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1, 2, …")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden is {self.hidden}: expected some widths, of 1 at least")
        for name in ("discount", "trace"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 0 to 1")
        for name in ("largest", "clip", "divergence", "learning_rate", "unit"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} is {getattr(self, name)}: expected a positive number")
        for name in ("critic", "entropy", "bonus"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 0 or more")
        for name, known in (
            ("sizes", ("linear", "log")),
            ("pooling", ("whole", "difference")),
            ("head", ("shared", "flat")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected one of {known}")
