"""Settings of the REGAL experiment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from experiments.harness import command_line
from experiments.harness.command_line import UsageError, at_least
from experiments.regal.methods import LEAST
from gopt.systems import regal


@dataclass(frozen=True)
class Training:
    """Settings of the training.

    Attributes:
      evaluations: budget of each search, smaller than in the test, for speed.
      graphs: graphs in a step, `G`.
      samples: actions for each graph, `S`; at least two.
      variants: noisy copies of each training graph, besides the graph itself.
      splits: splits whose graphs the policy trains on. Settings, except for the number of steps,
        were chosen on the validation split, with policies of the training split alone.
    """

    evaluations: int = 2120
    graphs: int = 16
    samples: int = 8
    variants: int = 1
    splits: tuple[Literal["train", "validation"], ...] = ("train", "validation")

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}: expected 2 at least, for a baseline")
        if not self.splits or len(set(self.splits)) < len(self.splits):
            raise ValueError(f"splits is {self.splits}: expected some, each once")


@dataclass(frozen=True)
class Settings(command_line.TrainedSettings):
    """Settings of the experiment.

    Attributes:
      table: 1, all methods; ablation, effect of the genetic algorithm; 3, variants of the policy
        on all splits, each trained first (hours); tuning, search for the settings of tuned BRKGA;
        graphs, a table of all graphs.
      objective: objective to minimise.
      evaluations: budget of every search on every graph, at least what the heuristics need.
      seeds: runs of every search on every graph.
      long: budget of additional runs of the strongest searches, used only for the best known cost;
        0 for none.
      equal_seconds: run every search of table 1 and of the ablation again, with as many evaluations
        as take the seconds of the slowest one, on average over the graphs.
      solver_seconds: time of CP-SAT on every graph; METIS runs, too (needs the extra `solvers`). 0
        for neither. CP-SAT has no model of the makespan under capacities, and no row there.
      split: graphs to evaluate on, from families that the policy was not trained on. Shipped
        policies were also trained on the validation split. The transfer split is the test split
        optimised by XLA, which takes minutes.
      folder: folder of the run.
      policy: sizes of a policy that is trained; a loaded policy has its own.
      training: settings of the training.
    """

    table: Literal["1", "ablation", "3", "tuning", "graphs"] = "1"
    objective: Literal["peak_memory", "makespan", "capped_makespan"] = "peak_memory"
    evaluations: int = at_least(LEAST, 5000)
    seeds: int = at_least(1, 2)
    long: int = 0
    equal_seconds: bool = False
    solver_seconds: float = at_least(0, 0.0)
    split: Literal["test", "validation", "transfer"] = "test"
    folder: Path = Path("runs/regal")
    policy: regal.Settings = field(default_factory=regal.Settings)
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.long and self.long < self.evaluations:
            raise UsageError(f"long is {self.long}: expected 0, or {self.evaluations} at least")
        if self.long and self.table != "1":
            raise UsageError(f"long is {self.long}: table {self.table} has no longer runs")
        if self.table == "3" and (self.equal_seconds or self.solver_seconds):
            raise UsageError("table 3 has no rows for equal_seconds or solver_seconds")
        if self.table in ("graphs", "tuning") and (self.train or self.weights is not None):
            raise UsageError(
                f"table {self.table} evaluates no policy: expected no weights or train"
            )
        if self.table == "3" and (self.train or self.weights is not None):
            raise UsageError("table 3 trains all its policies: expected no weights or train")
