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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
from rich.progress import track

from experiments.harness import command_line, store
from experiments.harness.command_line import UsageError, at_least
from experiments.harness.runs import kept_runs
from experiments.local_advantage import ablation, graphs, methods, real, report, routes, runs
from experiments.local_advantage import training as trainer
from gopt.program.hashing import digest_arrays
from gopt.systems import local_advantage

Network = tuple[Any, local_advantage.Settings]  # parameters and settings


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


def data(settings: Settings, split: str) -> list[tuple[graphs.Case, local_advantage.Records]]:
    """Return the graphs of a split with their records."""
    return trainer.shards(
        graphs.SPLITS[split],
        sampling=settings.sampling,
        seed=settings.seed,
        folder=settings.folder / "data" / split,
        label=f"sampling {split} graphs",
    )


def trained(settings: Settings, name: str = "network") -> Network:
    """Return the parameters and settings of a network after training and saving it."""
    params, losses = trainer.train(
        data(settings, "train"),
        settings=settings.network,
        seed=settings.seed,
        folder=settings.folder / "checkpoints" / name,
        label=f"training {name}",
    )
    store.save_json(settings.folder / f"{name}.json", losses)
    local_advantage.save(
        settings.folder / f"{name}.npz",
        params,
        settings.network,
        origin=store.origin(settings),
    )
    return params, settings.network


def compare(settings: Settings, learned: dict[str, methods.Learned]) -> None:
    """Run all searches on every graph of a split.

    Args:
      settings: settings of the experiment.
      learned: searches that use networks, by name.
    """
    store.save_settings(settings.folder, settings)
    searches = {name: search for name, (search, _) in learned.items()}
    searches |= methods.unguided(settings.evaluations)
    compiled = {name: methods.many(search) for name, search in searches.items()}
    params = {name: found for name, (_, found) in learned.items()}
    digests = {name: digest_arrays(trained) for name, trained in params.items()}
    about = store.described(settings, "table", "train", "weights", "sampling")
    kept = store.Store(settings.folder / "rows", about | {"searches": digests})
    found, root = [], jax.random.key(settings.seed)
    for index, spec in enumerate(track(graphs.SPLITS[settings.split], "searching")):
        case = graphs.case(spec)
        key = jax.random.fold_in(root, index)
        run = partial(runs.run, case, compiled, params, seeds=settings.seeds, key=key)
        found.append(report.Graph(case, kept_runs(kept, case.name, run)))
        store.save_json(settings.folder / "runs.json", report.values(found))
    title = f"{settings.evaluations} evaluations, {settings.seeds} seeds, {settings.split} split"
    report.report(found, tuple(searches), settings.folder, title=title)
    report.draw(found, tuple(searches), settings.folder)
    print(f"saved in {settings.folder}")


def compare_variants(settings: Settings) -> None:
    """Train a network of every variant, and compare their rankings and guided searches."""
    networks = {
        name: trained(dataclasses.replace(settings, network=sizes), name.replace(" ", "_"))
        for name, sizes in ablation.variants(settings.network).items()
    }
    held_out = data(settings, settings.split)
    ablation.rank_correlations(networks, held_out, settings.folder)
    ablation.path_sums(networks["guided"], held_out, settings.folder, seed=settings.seed)
    compare(settings, ablation.searches(networks, settings.evaluations))


def main(settings: Settings) -> None:
    """Run the experiment."""
    if settings.table == "ablation":
        compare_variants(settings)
        return
    network = trained(settings) if settings.train else local_advantage.load(settings.weights)
    if settings.table != "real":
        params, sizes = network
        search = methods.by_network(sizes, settings.evaluations)
        learned = {"guided": methods.Learned(search, params)}
        if settings.table == "routes":
            learned |= routes.routes(
                data(settings, "train"),
                settings=settings.network,
                evaluations=settings.evaluations,
                seed=settings.seed,
                folder=settings.folder,
            )
        compare(settings, learned)
    else:
        command_line.keep_memory()
        store.save_settings(settings.folder, settings)
        real.compare(
            network,
            evaluations=settings.evaluations,
            seeds=settings.seeds,
            seed=settings.seed,
            folder=settings.folder,
        )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
