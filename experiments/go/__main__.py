"""GO on the fourteen rows of its placement table, against searches, heuristics and experts.

    python -m experiments.go                              # all rows, searches of 3 601 placements
    python -m experiments.go --rows "RNNLM, 2 layers"     # one of them
    python -m experiments.go --train                      # trains a policy first

Step times are simulated: P100s, as in the paper, first come, first served (see
`gopt.cost.dispatch`). Searches begin with the best placement of the heuristics, experts left out,
and evaluate the same number of placements. Prints a table and saves it with settings, versions and
the figures of every run.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.progress import track

from experiments import common
from experiments.cases import check_names
from experiments.go import heuristics, methods, report, runs
from experiments.go import training as trainer
from experiments.go.rows import ROWS, build
from gopt.classical import makespan_bound
from gopt.files import write_whole
from gopt.hardware import p100s
from gopt.problem import prepare, to_seconds
from gopt.systems import go

# What searches may begin with, the first of them if `alone` is set.
AUTOMATIC = ("one device", "METIS, repaired", "critical path", "HEFT", "ETF", "m-ETF")


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
      rows: of the table, by name.
      searches: by name, see `experiments.go.methods`.
      evaluations: of each search, that of the placement it begins with included.
      seeds: runs of each search, and of METIS.
      alone: searches begin with all ops on one device instead of the best of the heuristics.
      train: train a policy first, instead of loading `weights`.
      weights: a policy that was trained with `--train`.
      folder: where the run is saved.
      seed: of everything random.
      policy: sizes of a policy that is trained; one that is loaded has its own.
      training: how it is trained.
    """

    rows: tuple[str, ...] = tuple(ROWS)
    searches: tuple[str, ...] = methods.NAMES
    evaluations: int = 3601  # 25 steps of training after the start
    seeds: int = 3
    alone: bool = False
    train: bool = False
    weights: Path | None = None
    folder: Path = Path("runs/go")
    seed: int = 0
    policy: go.Settings = field(default_factory=go.Settings)
    training: trainer.Training = field(default_factory=trainer.Training)


def policy(settings: Settings) -> tuple[Any, go.Settings]:
    """Returns the parameters and settings of the policy: trained now, or loaded."""
    if settings.train:
        return trainer.train(
            settings.training, settings.policy, settings.seed, settings.folder / "policy"
        )
    if settings.weights is None:
        raise ValueError("weights are not given: expected those of a policy, or --train")
    return go.load_policy(settings.weights)


def measure(name: str, settings: Settings, trained: Any, policy: go.Settings) -> report.Measured:
    """Returns what each method finds on a row, with trained parameters of the policy."""
    jax.clear_caches()  # programs of several rows at once are more than a process may map
    row = ROWS[name]
    traced = build(row)
    problem = prepare(traced.graph, p100s(row.devices))
    placed = heuristics.placed(problem, traced, row, settings.seeds)
    automatic = AUTOMATIC[:1] if settings.alone else AUTOMATIC
    begun = min(automatic, key=lambda each: (not placed[each].fits, placed[each].makespan))
    case = methods.case(traced.graph, problem, placed[begun].device, policy)
    keys = jax.random.split(jax.random.key(settings.seed), settings.seeds)
    init = partial(go.init_params, settings=policy)
    first = jax.jit(jax.vmap(init, (0, None)))(keys, case.inputs)
    learned = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *x.shape)), trained)
    searches = methods.searches(settings.evaluations, policy)
    found = {}
    for search in settings.searches:
        params = first if search in methods.FROM_SCRATCH else learned
        found[search] = runs.run(searches[search], keys, case, params)
    bound = float(to_seconds(problem, makespan_bound(problem)))
    placements = {k: one.device for k, one in placed.items()}
    placements |= {k: device for k, (_, device) in found.items()}
    with write_whole(settings.folder / f"{name}.npz") as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **placements)
    return report.Measured(
        name, int(problem.num_ops), placed, begun, {k: one for k, (one, _) in found.items()}, bound
    )


def main(settings: Settings) -> None:
    """Runs the experiment."""
    check_names("rows", settings.rows, ROWS)
    check_names("searches", settings.searches, methods.NAMES)
    common.start()
    trained, sizes = policy(settings)
    methods.searches(settings.evaluations, sizes)  # raises now rather than after the heuristics
    settings = dataclasses.replace(settings, policy=sizes)
    common.save_settings(settings.folder, settings)
    measured = []
    for name in track(settings.rows, "rows of the table"):
        measured.append(measure(name, settings, trained, sizes))
        report.save(measured, settings.folder)
    title = (
        f"Placement under a simulation of P100s, {settings.evaluations} evaluations, "
        f"{settings.seeds} seeds"
    )
    report.report(title, measured, settings.folder)
    report.draw(measured, settings.folder)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
