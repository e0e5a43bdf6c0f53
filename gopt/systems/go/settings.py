"""Settings of GO: sizes of its policy, search, and training."""

from dataclasses import dataclass
from itertools import product

from gopt.learning.settings import MAX_LAYERS, MAX_SIZE, check_numbers
from gopt.systems.go.decisions import TASKS


@dataclass(frozen=True)
class Settings:
    """Sizes and settings, all our choice where the paper does not give them.

    Attributes:
      tasks: tasks to decide, some of `TASKS`; each has its own part of the network and own samples.
      width: size of the embedding of an op; the last hidden layer of heads has half of it.
      rounds: rounds of GraphSAGE.
      layers: layers of segment-recurrent attention over all ops, shared by all tasks.
      task_layers: attention layers per task, after the shared ones.
      superposition: whether the inputs of these layers are scaled by an embedding of the whole
        graph.
      heads: number of attention heads.
      segment: number of ops in a segment.
      levels: largest number of groups of each level, from coarse to fine.
      changes: total odds of the groups of a level to be moved, before training. About as many move
        on average; a few more, because at least one has to.
      samples: decisions drawn in an iteration for each task and level, `S`.
      explore: share of the moves that is drawn uniformly, so that no move becomes impossible.
      iterations: iterations between two steps of training, `T`.
      epochs: passes over the drawn decisions in a step of training; with one, PPO clips nothing.
      advantage_floor: reward spread below which advantages of a graph are scaled down.
      clip: PPO clip of the ratio of probabilities, ε.
      entropy: weight of the entropy of the moves, in PPO.
      learning_rate: Adam learning rate.
      max_gradient_norm: largest global norm of the gradient, which is clipped to it.
    """

    tasks: tuple[str, ...] = ("placement",)
    width: int = 64
    rounds: int = 2
    layers: int = 1
    task_layers: int = 1
    superposition: bool = True
    heads: int = 4
    segment: int = 128
    levels: tuple[int, ...] = (64, 256, 1024)
    changes: float = 1.5
    samples: int = 4
    explore: float = 0.2
    iterations: int = 12
    epochs: int = 2
    advantage_floor: float = 1e-4
    clip: float = 0.2
    entropy: float = 0.02
    learning_rate: float = 1e-3
    max_gradient_norm: float = 0.5

    def __post_init__(self) -> None:
        check_numbers(self, "rounds", at_least=1, at_most=MAX_LAYERS)
        check_numbers(self, "layers", "task_layers", at_least=0, at_most=MAX_LAYERS)
        check_numbers(self, "iterations", "epochs", at_least=1)
        check_numbers(self, "heads", "segment", at_least=1, at_most=MAX_SIZE)
        check_numbers(self, "width", "samples", at_least=2, at_most=MAX_SIZE)  # samples compare
        check_numbers(self, "explore", above=0, below=1)
        check_numbers(
            self,
            "changes",
            "advantage_floor",
            "clip",
            "learning_rate",
            "max_gradient_norm",
            above=0,
        )
        check_numbers(self, "entropy", at_least=0)
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}: expected a divisor of the width {self.width}")
        if not self.tasks or set(self.tasks) - set(TASKS) or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks is {self.tasks}: expected some of {TASKS}, each once")
        if not 1 <= len(self.levels) <= MAX_LAYERS or not all(
            1 <= groups <= MAX_SIZE for groups in self.levels
        ):
            raise ValueError(f"levels is {self.levels}: expected numbers in 1..{MAX_SIZE}")

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """Kinds of moves: pairs of a task and a level, both by index. There are `M`."""
        return tuple(product(range(len(self.tasks)), range(len(self.levels))))

    @property
    def evaluations_per_iteration(self) -> int:
        """Number of decisions simulated in an iteration: the best so far, and the drawn ones."""
        return 1 + self.samples * len(self.moves)
