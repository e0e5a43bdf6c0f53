"""Compare GO with searches, heuristics and experts on the fourteen rows of its placement table.

    python -m experiments.go                              # places all rows, by the shipped policy
    python -m experiments.go --train                      # trains a policy first
    python -m experiments.go --table joint --train        # fusion and priorities are decided, too
    python -m experiments.go --rows "RNNLM, 2 layers"     # one of the rows
    python -m experiments.go --profiled FILE              # rows from profiles

Step times are simulated on P100s, as in the paper (see `gopt.cost.schedule.dispatch`). Searches
start from the best heuristic decision, without experts, and have one budget of evaluations. Prints
a table. Saves it with settings, versions and the figures of every run. Results of each search on a
row are kept. An interrupted run, or a run with other rows and searches, continues from them.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import track

from experiments.go import case as cases
from experiments.go import heuristics, methods, report
from experiments.go import training as trainer
from experiments.go.rows import ROWS, Row, build, profiled
from experiments.go.tables import TABLES, seconds_of, simulated
from experiments.harness import command_line, runs, store
from experiments.harness.command_line import UsageError, check_names, choice
from experiments.harness.report import Row as Measured
from experiments.harness.runs import Runs, alike, kept_runs, over_runs
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.heuristics import makespan_bound
from gopt.heuristics.schedule.placement.list_scheduling import mean_ticks
from gopt.program.hashing import digest_arrays
from gopt.search.result import SearchResult
from gopt.systems import go


@dataclass(frozen=True)
class Settings(command_line.TrainedSettings):
    """Settings of the experiment.

    Attributes:
      table: table to make, which says what is decided; see `experiments.go.tables`.
      rows: names of rows of the table; by default all.
      profiled: JSON file of profiled networks, which replace the rows, each on 2 and on 4 devices;
        see `gopt.sources.instances.profiled_step`.
      searches: names of searches, see `experiments.go.methods`; by default all.
      evaluations: budget of each search, including the evaluation of its start.
      seeds: runs of each search, and of METIS.
      alone: start searches from the first possible start, not from the best one. This is one
        device, except where ops are only scheduled.
      folder: folder of runs, with a subfolder for each table and for `alone`.
      policy: settings of a policy that is trained now: sizes, search, fine-tuning. A loaded policy
        has its own settings, with the tasks of the table.
      training: settings of the training; they take precedence over the training fields of `policy`.
    """

    table: str = choice(TABLES, "placement")
    rows: tuple[str, ...] = ()
    profiled: Path | None = None
    searches: tuple[str, ...] = ()
    evaluations: int = 3601  # the start, and 12 training steps of two tasks
    seeds: int = 3
    alone: bool = False
    folder: Path = Path("runs/go")
    policy: go.Settings = field(default_factory=go.Settings)
    training: trainer.Training = field(default_factory=trainer.Training)


def measure(name: str, row: Row, settings: Settings, trained: Any) -> Measured:
    """Return the results of each method on a row, with trained parameters of the policy."""
    jax.clear_caches()  # the programs of several rows exceed the memory maps of a process
    step, folder = build(row), settings.folder / name
    place = partial(heuristics.kept, folder, step=step, row=row, seeds=settings.seeds)
    problem, given, default, starts, beyond = TABLES[settings.table][0](step, row.devices, place)
    begun = min(starts[:1] if settings.alone else starts, key=lambda each: given[each].makespan)
    case = cases.case(step.graph, problem, *given[begun][:2], settings.policy)
    about: dict[str, Any] = {"published": row.published, "default": default, "begun": begun}
    about["ops"] = int(case.schedule.num_ops)
    if "fusion" not in settings.policy.tasks:
        about["bound"] = float(seconds_of(problem, makespan_bound(case.schedule)))
        about["work"] = float(seconds_of(problem, mean_ticks(case.schedule).sum() / row.devices))
    found = {name: one.runs for name, one in (given | {report.START: given[begun]}).items()}
    found |= search(folder, row, case, settings, trained)
    return Measured(name, row.family, found, {}, about, beyond)


def search(
    folder: Path, row: Row, case: cases.Case, settings: Settings, trained: Any
) -> dict[str, Runs]:
    """Return the results of each search on a row; results in the folder are read instead."""
    to_init, to_run = jax.random.split(jax.random.key(settings.seed))
    keys = jax.random.split(to_run, settings.seeds)
    init = jax.vmap(partial(go.init, settings=settings.policy), (0, None))
    first = jax.jit(init)(jax.random.split(to_init, settings.seeds), case.inputs)
    searches = methods.searches(settings.evaluations, settings.policy)
    about = {
        "row": row.family,
        "sizes": row.sizes,
        "case": digest_arrays((case.problem, case.start, case.order)),
        "policy": dataclasses.asdict(settings.policy),
        **{name: getattr(settings, name) for name in ("evaluations", "seed", "seeds")},
    }
    found = dict[str, Runs]()
    for method in settings.searches or searches:
        is_learned = method in methods.LEARNED
        params = alike(len(keys), trained) if is_learned else first
        weights = digest_arrays(trained) if is_learned else None
        files = store.Store(folder / f"{method}.sqlite", about | {"weights": weights})

        def make(method: str = method, params: Any = params) -> dict[str, Runs]:
            return {method: run(searches[method], keys, case, params)}

        found |= kept_runs(files, method, make, go.OpDecisions)
    return found


def run(
    search: Callable[[jax.Array, cases.Case, Any], SearchResult],
    keys: jax.Array,
    case: cases.Case,
    params: Any,
) -> Runs:
    """Return the results of a search from random keys `[S]`, with parameters `[S, ...]`.

    Costs are s of a step, NaN where the memory of a device does not suffice.

    Raises:
      RuntimeError: a decision that is returned does not have the reported cost.
    """

    def cost(decision: go.OpDecisions) -> jax.Array:
        return simulated(case.problem, decision, case.order)

    def seconds(ticks: np.ndarray) -> np.ndarray:
        return np.where(ticks < MAX_TICKS, seconds_of(case.problem, ticks), np.nan)

    rows = alike(len(keys), case), params
    found = runs.run(over_runs(search).lower(keys, *rows).compile(), keys, *rows, cost=cost)
    return found._replace(cost=seconds(found.cost), history=seconds(found.history))


def main(settings: Settings) -> None:
    """Run the experiment.

    Raises:
      UsageError: a name is unknown, or the policy does not decide the tasks of the table.
    """
    rows = profiled(settings.profiled) if settings.profiled else ROWS
    check_names("rows", settings.rows, rows)
    tasks = TABLES[settings.table][1]
    if settings.profiled and "fusion" in tasks:
        raise UsageError(f"{settings.profiled} is of measured times: expected no table with fusion")
    trained, sizes = (None, settings.policy) if settings.train else go.load(settings.weights)
    if not settings.train and set(tasks) - set(sizes.tasks):
        raise UsageError(f"the policy decides {sizes.tasks}: expected {tasks}")
    kind = (", profiled" if settings.profiled else "") + (", alone" if settings.alone else "")
    settings = dataclasses.replace(
        settings,
        rows=settings.rows or tuple(rows),
        folder=settings.folder / (settings.table + kind),
        policy=dataclasses.replace(sizes, tasks=tasks),
    )
    searches = methods.searches(settings.evaluations, settings.policy)
    check_names("searches", settings.searches, searches)
    if settings.train:
        folder = settings.folder / "policy"
        trained, _ = trainer.train(settings.training, settings.policy, settings.seed, folder)
    store.save_settings(settings.folder, settings)
    measured = [
        measure(name, rows[name], settings, trained)
        for name in track(settings.rows, "rows of the table")
    ]
    name, budget = settings.folder.name.capitalize(), settings.evaluations
    title = f"{name}: simulated steps, {budget} evaluations, {settings.seeds} seeds"
    report.write(title, measured, settings.folder)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
