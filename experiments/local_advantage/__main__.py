"""Compare learned local advantage functions with searches, on families not trained on.

    python -m experiments.local_advantage              # evaluates the network that ships with gopt
    python -m experiments.local_advantage --train      # samples and trains first; resumes
    python -m experiments.local_advantage --table ablation   # trains the variants first
    python -m experiments.local_advantage --table routes     # trains a cost model, a policy first
    python -m experiments.local_advantage --table real --evaluations 100 --seeds 3

Every search gets the same number of evaluations on the same graphs. Searches start from XLA's
default configuration on CPUs and from random ones. Costs come from the CPU model
`gopt.cost.fusion.cost`. Prints tables. Saves them with settings, versions, figures of every run and
plots in one folder.
"""

import dataclasses
from functools import partial

import jax
from rich.progress import track

from experiments.harness import command_line, store
from experiments.harness.report import Row
from experiments.harness.runs import kept_runs
from experiments.local_advantage import ablation, graphs, methods, real, report, routes
from experiments.local_advantage.settings import Settings
from experiments.local_advantage.training import sampled, trained
from gopt.program.hashing import digest_arrays
from gopt.systems import local_advantage


def compare(settings: Settings, learned: dict[str, methods.Learned]) -> None:
    """Run all searches, and those that use learned parameters, on every graph of a split."""
    searches = learned | methods.unguided(settings.evaluations)
    digests = {name: digest_arrays(params) for name, (_, params) in searches.items()}
    about = store.described(settings, "table", "train", "weights", "sampling")
    kept = store.Store(settings.folder / "rows.sqlite", about | {"searches": digests})
    rows, root = [], jax.random.key(settings.seed)
    for index, spec in enumerate(track(graphs.SPLITS[settings.split], "searching")):
        case = graphs.case(spec)
        key = jax.random.fold_in(root, index)
        run = partial(methods.run, case, searches, seeds=settings.seeds, key=key)
        found = kept_runs(kept, case.name, run)
        shares = {name: cost / case.costs[graphs.DEFAULT] for name, cost in case.costs.items()}
        about = {
            "configurable": int(case.problem.num_choices),
            "known": {
                "priority fusion": shares["priority fusion"],
                "nothing fused": shares["nothing"],
            },
        }
        for start in ("default", "random"):
            runs = {name: found[f"{start}, {name}"] for name in searches}
            rows.append(Row(case.name, spec.workload, runs, {}, {"start": start, **about}))
    title = f"{settings.evaluations} evaluations, {settings.seeds} seeds, {settings.split} split"
    report.write(title, rows, settings.folder)


def compare_variants(settings: Settings) -> None:
    """Train a network of every variant, and compare their rankings and guided searches."""
    networks = {
        name: trained(dataclasses.replace(settings, network=sizes), name.replace(" ", "_"))
        for name, sizes in ablation.variants(settings.network).items()
    }
    held_out = sampled(settings, settings.split)
    ablation.rank_correlations(networks, held_out, settings.folder)
    ablation.path_sums(networks["guided"], held_out, settings)
    compare(settings, ablation.searches(networks, settings.evaluations))


def main(settings: Settings) -> None:
    """Run the experiment."""
    store.save_settings(settings.folder, settings)
    if settings.table == "ablation":
        compare_variants(settings)
        return
    network = trained(settings) if settings.train else local_advantage.load(settings.weights)
    if settings.table == "real":
        command_line.keep_memory()
        rows = real.rows(network, settings)
        title = f"measured kernels, {settings.evaluations} evaluations, {settings.seeds} seeds"
        report.write(title, rows, settings.folder)
        return
    params, sizes = network
    learned = {"guided": methods.by_network(params, sizes, settings.evaluations)}
    if settings.table == "routes":
        learned |= routes.routes(settings)
    compare(settings, learned)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
