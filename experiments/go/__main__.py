"""Compare GO with searches, heuristics and experts on the fourteen rows of its placement table.

    python -m experiments.go --train                      # trains a policy, and places all rows
    python -m experiments.go --weights POLICY             # with one that was trained
    python -m experiments.go --table joint --train        # fusion and priorities are decided, too
    python -m experiments.go --rows "RNNLM, 2 layers" --weights POLICY    # one of the rows
    python -m experiments.go --profiled FILE --weights POLICY             # rows from profiles

Step times are simulated on P100s, as in the paper (see `gopt.cost.schedule.dispatch`). Searches
start from the best heuristic decision, without experts, and have one budget of evaluations. Prints
a table. Saves it with settings, versions and the figures of every run. Results of each search on a
row are kept. An interrupted run, or a run with other rows and searches, continues from them.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import track

from experiments.go import case as cases
from experiments.go import heuristics, methods, report
from experiments.go import runs as searching
from experiments.go import training as trainer
from experiments.go.rows import ROWS, Row, build, profiled
from experiments.go.tables import TABLES, rank, seconds_of
from experiments.harness import command_line, store
from experiments.harness.command_line import UsageError, check_names, choice
from experiments.harness.runs import Runs, alike, kept_runs
from gopt.heuristics import makespan_bound
from gopt.heuristics.schedule.placement.list_scheduling import mean_ticks
from gopt.program.hashing import digest_arrays
from gopt.systems import go


@dataclass(frozen=True)
class Settings(command_line.Settings):
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
        device, except where ops are scheduled or fused.
      train: train a policy first, instead of loading `weights`.
      weights: policy that was trained with `--train`.
      folder: folder of runs, with a subfolder for each table and for `alone`.
      seed: seed of everything random.
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
    train: bool = False
    weights: Path | None = None
    folder: Path = Path("runs/go")
    seed: int = 0
    policy: go.Settings = field(default_factory=go.Settings)
    training: trainer.Training = field(default_factory=trainer.Training)


def policy(settings: Settings) -> tuple[Any, go.Settings]:
    """Return the parameters and settings of the policy: trained now, or loaded.

    Raises:
      UsageError: no policy is given, or it does not decide the tasks of the table.
    """
    tasks = TABLES[settings.table][1]
    if settings.train:
        sizes = dataclasses.replace(settings.policy, tasks=tasks)
        folder = settings.folder / "policy"
        return trainer.train(settings.training, sizes, settings.seed, folder)
    if settings.weights is None:
        raise UsageError("weights are not given: expected those of a policy, or --train")
    params, sizes = go.load(settings.weights)
    if set(tasks) - set(sizes.tasks):
        raise UsageError(f"{settings.weights} decides {sizes.tasks}: expected {tasks}")
    return params, dataclasses.replace(sizes, tasks=tasks)


def measure(
    name: str, row: Row, settings: Settings, trained: Any, policy: go.Settings
) -> report.Measured:
    """Return the results of each method on a row, with trained parameters of the policy."""
    jax.clear_caches()  # the programs of several rows exceed the memory maps of a process
    step, folder = build(row), settings.folder / name
    place = partial(heuristics.kept, folder, step=step, row=row, seeds=settings.seeds)
    make = TABLES[settings.table][0]
    problem, given, default, starts, beyond = make(step, row.devices, place)
    begun = min(starts[:1] if settings.alone else starts, key=lambda each: rank(given[each]))
    case = cases.case(step.graph, problem, *given[begun][:2], policy)
    found = search(name, row, case, settings, trained, policy)
    bound = work = np.nan
    if "fusion" not in policy.tasks:
        bound = float(seconds_of(problem, makespan_bound(case.schedule)))
        work = float(seconds_of(problem, mean_ticks(case.schedule).sum() / row.devices))
    return report.Measured(
        name=name,
        ops=int(case.schedule.num_ops),
        given=given,
        default=default,
        begun=begun,
        found=found,
        bound=bound,
        work=work,
        family=row.family,
        beyond=beyond,
        published=row.published,
    )


def search(
    name: str, row: Row, case: cases.Case, settings: Settings, trained: Any, policy: go.Settings
) -> dict[str, Runs]:
    """Return the results of each search on a row; results in its folder are read instead."""
    to_init, to_run = jax.random.split(jax.random.key(settings.seed))
    keys = jax.random.split(to_run, settings.seeds)
    init = jax.vmap(partial(go.init, settings=policy), (0, None))
    first = jax.jit(init)(jax.random.split(to_init, settings.seeds), case.inputs)
    learned = alike(len(keys), trained)
    searches = methods.searches(settings.evaluations, policy)
    about = {
        "row": row.family,
        "sizes": row.sizes,
        "case": digest_arrays((case.problem, case.start, case.order)),
        "evaluations": settings.evaluations,
        "seed": settings.seed,
        "seeds": settings.seeds,
        "policy": dataclasses.asdict(policy),
    }
    found = dict[str, Runs]()
    for method in settings.searches or searches:
        is_learned = method in methods.LEARNED
        run = partial(searching.run, searches[method], keys, case, learned if is_learned else first)
        weights = {"weights": digest_arrays(trained) if is_learned else None}
        files = store.Store(settings.folder / name, about | weights)
        found |= kept_runs(files, method, lambda run=run, m=method: {m: run()}, go.OpDecisions)  # type: ignore[misc]
    return found


def main(settings: Settings) -> None:
    """Run the experiment."""
    rows = profiled(settings.profiled) if settings.profiled else ROWS
    check_names("rows", settings.rows, rows)
    tasks = TABLES[settings.table][1]
    if settings.profiled and "fusion" in tasks:
        raise UsageError(f"{settings.profiled} is of measured times: expected no table with fusion")
    kind = (", profiled" if settings.profiled else "") + (", alone" if settings.alone else "")
    settings = dataclasses.replace(
        settings,
        rows=settings.rows or tuple(rows),
        folder=settings.folder / (settings.table + kind),
    )

    def check(policy: go.Settings) -> None:
        every = methods.searches(settings.evaluations, policy)
        check_names("searches", settings.searches, every)

    if settings.train:
        check(dataclasses.replace(settings.policy, tasks=tasks))
    trained, sizes = policy(settings)
    check(sizes)
    settings = dataclasses.replace(settings, policy=sizes)
    store.save_settings(settings.folder, settings)
    measured = []
    for name in track(settings.rows, "rows of the table"):
        measured.append(measure(name, rows[name], settings, trained, sizes))
        report.save(measured, settings.folder)
    what = "of profiled layers on the links of P100s" if settings.profiled else "of P100s"
    title = (
        f"{settings.table.capitalize()} under a simulation {what}, {settings.evaluations} "
        f"evaluations, {settings.seeds} seeds"
    )
    report.report(title, measured, settings.folder)
    report.draw(measured, settings.folder)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
