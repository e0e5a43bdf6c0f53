"""Compare REGAL with searches, heuristics and solvers, on model families not trained on.

    python -m experiments.regal                  # evaluates the policy that ships with gopt
    python -m experiments.regal --table all      # every table; trains the variants first (hours)
    python -m experiments.regal --train          # trains a policy first; resumes if interrupted

Every search gets the same number of evaluations on the same graphs, including the evaluations of
its starts. Prints a table. Saves it with settings, versions, figures of every run and plots in one
folder.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
from rich.progress import track

from experiments.harness import command_line, store
from experiments.harness import graphs as programs
from experiments.harness.command_line import UsageError, at_least
from experiments.harness.runs import Runs, kept_runs
from experiments.regal import graphs, methods, runs, variants
from experiments.regal import training as trainer
from experiments.regal.methods import DEVICES, LEAST
from experiments.regal.report import Row, draw_schedules, draw_searches, draw_tradeoff, report
from gopt.cost.schedule.decoding import Keys
from gopt.program.hashing import digest_arrays
from gopt.systems import regal

Learned = tuple[Any, regal.Settings]  # parameters and settings of a policy


@dataclass(frozen=True)
class Settings(command_line.TrainedSettings):
    """Settings of the experiment.

    Attributes:
      table: 1, all methods on one objective and split; 3, variants of the policy on all splits,
        each trained first (hours); ablation, effect of the genetic algorithm; runtime, table 1 for
        both objectives of time; all, also table 1 on the transfer split.
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
      folder: folder of the run, with a subfolder for each table except the first.
      policy: sizes of a policy that is trained; a loaded policy has its own.
      training: settings of the training.
    """

    table: Literal["1", "3", "ablation", "runtime", "all"] = "1"
    objective: Literal["peak_memory", "makespan", "capped_makespan"] = "peak_memory"
    evaluations: int = at_least(LEAST, 5000)
    seeds: int = 2
    long: int = 0
    equal_seconds: bool = False
    solver_seconds: float = at_least(0, 0.0)
    split: Literal["test", "validation", "transfer"] = "test"
    folder: Path = Path("runs/regal")
    policy: regal.Settings = field(default_factory=regal.Settings)
    training: trainer.Training = field(default_factory=trainer.Training)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.long and self.long < self.evaluations:
            raise UsageError(f"long is {self.long}: expected 0, or {self.evaluations} at least")
        if self.solver_seconds and not all(map(find_spec, ("ortools", "pymetis"))):
            raise UsageError("solver_seconds is set: it needs the extra `solvers`")
        if self.weights is not None and self.table not in ("1", "ablation"):
            raise UsageError(f"weights are given, and table is {self.table}: it has more policies")
        if self.train and self.split in self.training.splits:
            raise UsageError(
                f"split is {self.split!r}, which the policy is to be trained on: expected another "
                "one, or --training.splits train"
            )


def policy(settings: Settings) -> Learned:
    """Return the parameters and settings of the policy: trained now, or loaded.

    Raises:
      UsageError: the loaded policy was trained on the split.
    """
    objective = settings.objective
    if not settings.train:
        origin = regal.load_origin(settings.weights, objective=objective)
        if settings.split in origin.get("training", {}).get("splits", ()):
            raise UsageError(
                f"split is {settings.split!r}, which the policy was trained on: expected weights "
                "of one trained with --training.splits train"
            )
        return regal.load(settings.weights, objective=objective, devices=DEVICES)
    params, watched = trainer.train(
        _pools(objective, settings.training, settings.seed),
        objective=objective,
        policy=settings.policy,
        training=settings.training,
        seed=settings.seed,
        folder=settings.folder / "checkpoints",
    )
    store.save_json(settings.folder / "training.json", watched)
    regal.save(
        settings.folder / f"{objective}.npz",
        params,
        settings.policy,
        objective=objective,
        devices=DEVICES,
        origin=store.origin(settings),
    )
    return params, settings.policy


@cache
def _pools(objective: str, training: trainer.Training, seed: int) -> list[regal.Example]:
    specs = [spec for split in training.splits for spec in graphs.SPLITS[split]]
    train = [programs.build(spec) for spec in track(specs, "tracing training graphs")]
    return trainer.pools(train, objective=objective, training=training, seed=seed)


class Prepared(NamedTuple):
    """One graph, ready to be searched.

    Attributes:
      case: graph on its machine.
      keys: random keys, [S].
      starts: starts by search.
    """

    case: runs.Case
    keys: jax.Array
    starts: dict[str, runs.Timed]


def compare(settings: Settings, learned: Learned, searches: tuple[str, ...]) -> None:
    """Run some searches, heuristics and solvers on every graph of a split."""
    jax.clear_caches()  # the programs of several tables exceed the memory maps of a process
    settings = dataclasses.replace(settings, policy=learned[1])
    store.save_settings(settings.folder, settings)
    objective, root = settings.objective, jax.random.key(settings.seed)
    compiled = methods.compiled(objective, settings.evaluations, settings.policy)
    longer = methods.compiled(objective, settings.long, settings.policy)
    specs = graphs.SPLITS[settings.split]
    kept = store.Store(
        settings.folder / "rows",
        store.described(settings, "equal_seconds", "table", "train", "training", "weights")
        | {"learned": digest_arrays(learned[0]), "searches": list(searches)},
    )

    built = cache(lambda index: programs.build(specs[index]))

    @cache
    def prepared(index: int) -> Prepared:
        case = runs.case(built(index), objective)
        keys = jax.random.split(jax.random.fold_in(root, index), settings.seeds)
        return Prepared(case, keys, runs.starts(case, learned, settings.seed))

    def run(index: int, searches: Mapping[str, Any]) -> dict[str, Runs]:
        case, keys, starts = prepared(index)
        return {
            name: runs.run(search, keys, case, objective, starts[name])
            for name, search in searches.items()
        }

    def short(index: int) -> dict[str, Runs]:
        case = prepared(index).case
        found = runs.heuristics(case, objective)
        if settings.solver_seconds:
            found |= runs.solvers(case, objective, settings.solver_seconds)
        return found | run(index, {name: compiled[name] for name in searches})

    rows: list[Row] = []
    for index, spec in enumerate(track(specs, "searching")):
        found = kept_runs(kept, f"{index}", partial(short, index), Keys)
        long = {name: longer[name] for name in (methods.STRONGEST if settings.long else ())}
        best = kept_runs(kept, f"{index}, long", partial(run, index, long), Keys)
        graph = built(index)
        bound = runs.bound(graph, objective)
        rows.append(Row(programs.name(spec, graph), spec.workload, found, best, {}, bound))
    if settings.equal_seconds:
        jax.clear_caches()  # drop programs of other budgets
        budgets = runs.equal_budgets([row.found for row in rows], searches)
        timed = {
            name: methods.compiled(objective, budget, settings.policy)[name]
            for name, budget in budgets.items()
        }
        for index, row in enumerate(track(rows, "searching for equal seconds")):
            name = f"{index}, equal seconds"
            row.timed.update(kept_runs(kept, name, partial(run, index, timed), Keys))
    title = (
        f"{objective} on {DEVICES} devices, {settings.evaluations} evaluations, "
        f"{settings.seeds} seeds, {settings.split} split"
    )
    report(title, rows, settings.folder, objective=objective)
    draw_searches(rows, settings.folder, objective=objective)
    draw_tradeoff(rows, settings.folder, objective=objective)
    draw_schedules(prepared(len(rows) - 1).case.problem, rows[-1], settings.folder)
    print(f"saved in {settings.folder}")


def compare_variants(settings: Settings) -> None:
    """Train a policy of every variant on the training split, and compare them on other splits."""
    training = dataclasses.replace(settings.training, splits=("train",))
    settings = dataclasses.replace(settings, train=True, weights=None, training=training)
    store.save_settings(settings.folder, settings)
    policies = {}
    for name, sizes in variants.settings(settings.policy).items():
        folder = settings.folder / name.replace(", ", "_").replace(" ", "_")
        print(name)
        policies[name] = policy(dataclasses.replace(settings, policy=sizes, folder=folder))
        jax.clear_caches()  # the programs of all variants exceed the memory maps of a process
    variants.compare(
        policies,
        objective=settings.objective,
        evaluations=settings.evaluations,
        seeds=settings.seeds,
        seed=settings.seed,
        folder=settings.folder,
    )


def main(settings: Settings) -> None:
    """Run the experiment.

    Raises:
      UsageError: table 3 is requested for the makespan under capacities.
    """
    if settings.objective == "capped_makespan" and settings.table in ("3", "all"):
        raise UsageError(
            "objective is 'capped_makespan': expected another for table 3, because BRKGA, with "
            "which it compares, does not always fit"
        )

    def within(name: str, **changes: Any) -> Settings:
        return dataclasses.replace(settings, folder=settings.folder / name, **changes)

    wanted = {settings.table} if settings.table != "all" else {"1", "3", "ablation", "runtime"}
    if "1" in wanted:
        compare(settings, policy(settings), methods.SEARCHES)
    if settings.table == "all":
        there = within("transfer", split="transfer")
        compare(there, policy(settings), methods.SEARCHES)
    if "runtime" in wanted:
        for objective in ("makespan", "capped_makespan"):
            timed = within(objective, objective=objective)
            compare(timed, policy(timed), methods.SEARCHES)
    if "ablation" in wanted:
        compare(within("ablation"), policy(settings), methods.ABLATION)
    if "3" in wanted:
        compare_variants(within("variants"))


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
