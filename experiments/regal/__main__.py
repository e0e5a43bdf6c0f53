"""Compare REGAL with searches, heuristics and solvers, on model families not trained on.

    python -m experiments.regal                  # evaluates the policy that ships with gopt
    python -m experiments.regal --train          # trains a policy first; resumes if interrupted
    python -m experiments.regal --table 3        # trains the variants first (hours)

Every search gets the same number of evaluations on the same graphs, including the evaluations of
its starts. Prints a table. Saves it with settings, versions, figures of every run and plots in one
folder.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
from rich.progress import track

from experiments.harness import command_line, store
from experiments.harness import graphs as programs
from experiments.harness.command_line import UsageError
from experiments.harness.report import Row, equal_budgets
from experiments.harness.runs import Runs, Timed, kept_runs
from experiments.regal import graphs, methods, report, runs, tuning, variants
from experiments.regal import training as trainer
from experiments.regal.methods import DEVICES
from experiments.regal.settings import Settings
from gopt.cost.schedule.decoding import Keys
from gopt.program.hashing import digest_arrays
from gopt.systems import regal


def policy(settings: Settings) -> runs.Learned:
    """Return the parameters and settings of the policy: trained now, or loaded.

    Raises:
      UsageError: it is trained on the split.
    """
    objective, training = settings.objective, dataclasses.asdict(settings.training)
    if not settings.train:
        origin = regal.load_origin(settings.weights, objective=objective)
        training = origin.get("training", {})
    if settings.split in training.get("splits", ()):
        raise UsageError(
            f"split is {settings.split!r}, which the policy is trained on: expected another one, "
            "or a policy trained with --training.splits train"
        )
    if not settings.train:
        return regal.load(settings.weights, objective=objective, devices=DEVICES)
    return trainer.trained(training_pools(settings), settings)


def training_pools(settings: Settings) -> list[regal.Example]:
    """Return the graphs of the training's splits and their variants."""
    specs = [spec for split in settings.training.splits for spec in graphs.SPLITS[split]]
    return trainer.pools(specs, settings)


def search(
    settings: Settings,
    searches: Callable[[int], Mapping[str, Any]],
    starts: Callable[[runs.Case], Mapping[str, Timed]],
    learned: Any,
) -> list[Row]:
    """Return the runs of searches, heuristics and solvers on every graph of a split.

    Args:
      settings: settings of the experiment.
      searches: function that returns the compiled searches of a budget, by name.
      starts: function that returns the starts of searches on a graph, by name.
      learned: parameters of all policies.
    """
    jax.clear_caches()  # the programs of several tables exceed the memory maps of a process
    store.save_settings(settings.folder, settings)
    objective, root = settings.objective, jax.random.key(settings.seed)
    specs, short = graphs.SPLITS[settings.split], searches(settings.evaluations)
    kept = store.Store(
        settings.folder / "rows.sqlite",
        store.described(settings, "equal_seconds", "table", "train", "training", "weights")
        | {"learned": digest_arrays(learned), "searches": list(short)},
    )
    longer = searches(settings.long) if settings.long else {}
    longer = {name: longer[name] for name in methods.STRONGEST if name in longer}
    built = cache(lambda index: programs.build(specs[index]))

    @cache
    def prepared(index: int) -> tuple[runs.Case, jax.Array, Mapping[str, Timed]]:
        case = runs.case(built(index), objective)
        keys = jax.random.split(jax.random.fold_in(root, index), settings.seeds)
        return case, keys, starts(case)

    def run(index: int, searches: Mapping[str, Any]) -> dict[str, Runs]:
        case, keys, starts = prepared(index)
        return {
            name: runs.run(search, keys, case, objective, starts[name])
            for name, search in searches.items()
        }

    def known(index: int) -> dict[str, Runs]:
        return runs.heuristics(prepared(index)[0], objective)

    def first(index: int) -> dict[str, Runs]:
        solved = {}
        if settings.solver_seconds:
            solved = runs.solvers(prepared(index)[0], objective, settings.solver_seconds)
        return solved | run(index, short)

    rows = []
    for index, spec in enumerate(track(specs, f"searching, {settings.split}")):
        tried = kept_runs(kept, f"{index}, heuristics", partial(known, index), Keys)
        found = kept_runs(kept, f"{index}", partial(first, index), Keys)
        long = kept_runs(kept, f"{index}, long", partial(run, index, longer), Keys)
        graph = built(index)
        rows.append(
            Row(
                programs.name(spec, graph),
                spec.workload,
                runs.best_heuristics(tried, objective) | found,
                {"heuristics": tried, "long": long, "timed": {}},
                {"bound": runs.bound(graph, objective)},
            )
        )
    if settings.equal_seconds:
        jax.clear_caches()  # drop programs of other budgets
        budgets = equal_budgets([row.found for row in rows], list(short))
        same = {name: searches(budget)[name] for name, budget in budgets.items()}
        for index, row in enumerate(track(rows, "searching for equal seconds")):
            make = partial(run, index, same)
            timed = kept_runs(kept, f"{index}, equal seconds", make, Keys)
            rows[index] = row._replace(others={**row.others, "timed": timed})
    return rows


def title(settings: Settings, split: str) -> str:
    """Return the title of a table."""
    return (
        f"{settings.objective} on {DEVICES} devices, {settings.evaluations} evaluations, "
        f"{settings.seeds} seeds, {split}"
    )


def compare(settings: Settings, names: tuple[str, ...]) -> None:
    """Compare some searches, heuristics and solvers on a split."""
    objective, learned = settings.objective, policy(settings)
    settings = dataclasses.replace(settings, policy=learned[1])

    def searches(budget: int) -> dict[str, Any]:
        every = methods.compiled(objective, budget, settings.policy)
        return {name: every[name] for name in names}

    starts = partial(runs.starts, learned=learned, seed=settings.seed)
    rows = search(settings, searches, starts, learned[0])
    head = title(settings, f"{settings.split} split")
    report.write(head, rows, settings.folder, objective=objective)
    report.draw(rows, settings.folder, objective=objective)
    last = programs.build(graphs.SPLITS[settings.split][-1])
    problem = runs.task(runs.padded_graph(last), objective)
    report.draw_schedules(problem, rows[-1], settings.folder)


def compare_variants(settings: Settings) -> None:
    """Train a policy of every variant on the training split, and compare them on other splits."""
    training = dataclasses.replace(settings.training, splits=("train",))
    settings = dataclasses.replace(settings, training=training)
    pools, policies = training_pools(settings), {}
    for name, sizes in variants.settings(settings.policy).items():
        folder = settings.folder / name.replace(", ", "_").replace(" ", "_")
        print(name)
        one = dataclasses.replace(settings, policy=sizes, folder=folder)
        policies[name] = trainer.trained(pools, one)
        jax.clear_caches()  # the programs of all variants exceed the memory maps of a process
    rows = {
        split: search(
            dataclasses.replace(settings, split=split, folder=settings.folder / split),
            partial(variants.searches, policies, settings.objective),
            partial(variants.starts, policies, settings.seed),
            [params for params, _ in policies.values()],
        )
        for split in variants.SPLITS
    }
    variants.write(title(settings, "all splits"), list(policies), rows, settings.folder)


def main(settings: Settings) -> None:
    """Run the experiment."""
    store.save_settings(settings.folder, settings)
    if settings.table == "3":
        compare_variants(settings)
    elif settings.table == "tuning":
        tuning.run(settings)
    elif settings.table == "graphs":
        path = settings.folder / "all_graphs.md"
        programs.show("Graphs of the REGAL experiment", graphs.SPLITS, path)
    else:
        compare(settings, methods.SEARCHES if settings.table == "1" else methods.ABLATION)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
