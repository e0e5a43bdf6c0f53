"""Settings of the local advantage experiment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from experiments.harness import command_line
from experiments.harness.command_line import UsageError, at_least
from gopt.systems import local_advantage


@dataclass(frozen=True)
class Settings(command_line.TrainedSettings):
    """Settings of the experiment.

    Attributes:
      table: 1, all searches; ablation, other targets and samples of the network, each variant
        trained first; routes, other ways to use training graphs, trained first; real, guided and
        random search by measured times of kernels on this CPU.
      evaluations: budget of every search on every graph.
      seeds: runs of every search on every graph from each kind of start.
      split: split of graphs to evaluate on.
      folder: folder of the run.
      network: sizes and training of a network that is trained; a loaded network has its own.
      sampling: settings of the training data's sampling.
    """

    table: Literal["1", "ablation", "routes", "real"] = "1"
    evaluations: int = at_least(2, 4500)
    seeds: int = at_least(1, 5)
    split: Literal["test", "validation"] = "test"
    folder: Path = Path("runs/local_advantage")
    network: local_advantage.Settings = field(default_factory=local_advantage.Settings)
    sampling: local_advantage.Sampling = field(default_factory=local_advantage.Sampling)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table == "ablation" and (self.train or self.weights is not None):
            raise UsageError("the ablation trains all its networks: expected no weights or train")
        if self.table == "real" and self.split != "test":
            raise UsageError("split is given: measured searches have blocks of their own")
