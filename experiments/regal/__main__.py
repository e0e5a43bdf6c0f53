"""REGAL against searches, heuristics and solvers, on model families that it was not trained on.

    python -m experiments.regal                  # evaluates the policy that ships with gopt
    python -m experiments.regal --train          # trains one first; resumes if interrupted

Every search gets the same number of evaluations on the same graphs, those of what it starts from
included. Prints a table and saves it with settings, versions, figures of every run and plots in one
folder.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import jax
import tyro
from rich.progress import track

from experiments import common
from experiments.regal import graphs, methods, runs
from experiments.regal import training as trainer
from experiments.regal.methods import DEVICES, LEAST
from experiments.regal.report import Row, draw_schedules, draw_searches, draw_tradeoff, report
from gopt.systems import regal


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
      objective: what is minimised.
      evaluations: budget of every search on every graph.
      seeds: runs of every search on every graph.
      long: budget of more runs of the strongest searches, for the best known only; 0: none.
      solver_seconds: of CP-SAT on every graph, and METIS runs, too (needs the extra `solvers`); 0:
        neither of them.
      train: train a policy, instead of loading `weights`.
      weights: a policy to evaluate; by default the one that ships for the objective.
      split: graphs to evaluate on; none of their families is trained on. The transfer split is the
        test split after XLA has optimised it, which takes minutes.
      folder: where the run is saved.
      seed: of everything random.
      policy: sizes of a policy that is trained; one that is loaded has its own.
      training: how it is trained.
    """

    objective: Literal["peak_memory", "makespan"] = "peak_memory"
    evaluations: int = 5000
    seeds: int = 2
    long: int = 0
    solver_seconds: float = 0.0
    train: bool = False
    weights: Path | None = None
    split: Literal["test", "validation", "transfer"] = "test"
    folder: Path = Path("runs/regal")
    seed: int = 0
    policy: regal.Settings = field(default_factory=regal.Settings)
    training: trainer.Training = field(default_factory=trainer.Training)

    def __post_init__(self) -> None:
        for name in ("evaluations", "long"):
            budget = getattr(self, name)
            if budget < LEAST and (name == "evaluations" or budget != 0):
                raise ValueError(
                    f"{name} is {budget}: expected {LEAST} at least, for the heuristics"
                )
        if self.solver_seconds < 0:
            raise ValueError(f"solver_seconds is {self.solver_seconds}: expected 0 or more")
        if self.solver_seconds and not all(map(find_spec, ("ortools", "pymetis"))):
            raise ValueError("solver_seconds is set: it needs the extra `solvers`")
        if self.train and self.weights is not None:
            raise ValueError("weights are given, and train is set: expected one of them")


def policy(settings: Settings) -> tuple[Any, regal.Settings]:
    """Returns the parameters and settings of the policy: trained now, or loaded."""
    if settings.train:
        train = [graphs.build(s) for s in track(graphs.TRAIN, "tracing training graphs")]
        pools = trainer.pools(
            train,
            runs.machine(settings.objective),
            objective=settings.objective,
            training=settings.training,
            seed=settings.seed,
        )
        params, watched = trainer.train(
            pools,
            objective=settings.objective,
            policy=settings.policy,
            training=settings.training,
            seed=settings.seed,
            folder=settings.folder / "checkpoints",
        )
        common.save_json(settings.folder / "training.json", watched)
        origin = {**dataclasses.asdict(settings), "versions": common.versions()}
        regal.save_policy(
            settings.folder / f"{settings.objective}.npz",
            params,
            settings.policy,
            objective=settings.objective,
            devices=DEVICES,
            origin=json.loads(json.dumps(origin, default=str)),
        )
        return params, settings.policy
    return regal.load_policy(settings.weights, objective=settings.objective, devices=DEVICES)


def main(settings: Settings) -> None:
    """Runs the experiment."""
    common.start()
    learned = policy(settings)
    settings = dataclasses.replace(settings, policy=learned[1])
    common.save_settings(settings.folder, settings)
    objective = settings.objective
    searches = methods.compiled(objective, settings.evaluations, settings.policy)
    longer = methods.compiled(objective, settings.long, settings.policy)
    rows: list[Row] = []
    root = jax.random.key(settings.seed)
    for index, spec in enumerate(track(graphs.SPLITS[settings.split], "searching")):
        graph = graphs.build(spec)
        case = runs.case(graph, objective)
        keys = jax.random.split(jax.random.fold_in(root, index), settings.seeds)
        starts = runs.starts(case, learned, settings.seed)
        found = runs.heuristics(case, objective)
        if settings.solver_seconds:
            found |= runs.solvers(case, objective, settings.solver_seconds)
        for name in methods.SEARCHES:
            found[name] = runs.run(searches[name], keys, case, objective, starts[name])
        long = {
            name: runs.run(longer[name], keys, case, objective, starts[name])
            for name in (methods.STRONGEST if settings.long else ())
        }
        bound = runs.bound(case, objective)
        rows.append(Row(graphs.name(spec, graph), spec.workload, found, long, bound))
    title = (
        f"{objective} on {DEVICES} devices, {settings.evaluations} evaluations, "
        f"{settings.seeds} seeds, {settings.split} split"
    )
    report(title, rows, settings.folder)
    draw_searches(rows, settings.folder)
    draw_tradeoff(rows, settings.folder)
    draw_schedules(case.problem, rows[-1].found, settings.folder)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
