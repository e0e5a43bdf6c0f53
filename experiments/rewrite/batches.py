"""Search with partially equivalent ops on residual networks, by batch and image size.

    python -m experiments.rewrite.batches
    python -m experiments.rewrite.batches --models ResNet-18 --batches 1 16 --sizes 128

PET is compared with TASO on these two networks. All searches have the same rules and the same
measured costs of ops. `gopt.rewriting.partial_equivalence` also has alternative forms of ops, and
three rounds of 100 programs. "Backtracking, 300" has as many programs. "Plain" means that both were
compiled without YNNPACK. Needs the extra `rewriting`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import milliseconds, ratio
from experiments.rewrite.measuring import cost_of_before, measure, measured_cost, rules
from experiments.rewrite.searches import SEARCHES
from gopt.fusion import KernelTimes
from gopt.program.program import trace_program
from gopt.rewriting.search.pet_mutants import MUTATIONS
from gopt.workloads.cases import Case, forward
from gopt.workloads.rewriting.networks import resnet18

NETWORKS: dict[str, Callable[..., Case]] = {
    "ResNet-18": resnet18,
    "ResNeXt-50": partial(forward, "resnext"),
}
COMPARED = ("backtracking", "backtracking, 300", "partial equivalence")
FORMS = {name for each in MUTATIONS.values() for name in each}


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `NETWORKS`; by default all.
      batches: numbers of images.
      sizes: sizes of images, in pixels.
      searches: searches from `experiments.rewrite.searches.SEARCHES`.
      turns: rounds in which each op is timed; the least time counts.
      repeats: rounds in which whole programs are timed.
      seed: seed of weights and inputs.
      folder: folder of figures, the table and times of ops.
    """

    models: tuple[str, ...] = choice(NETWORKS)
    batches: tuple[int, ...] = at_least(1, (1, 4, 16, 64))
    sizes: tuple[int, ...] = at_least(1, (128, 224))
    searches: tuple[str, ...] = choice(SEARCHES, COMPARED)
    turns: int = at_least(1, 6)
    repeats: int = at_least(1, 8)
    seed: int = 0
    folder: Path = Path("runs/rewrite/batches")


def run(
    model: str, size: int, batch: int, search: str, times: KernelTimes, settings: Settings
) -> dict[str, Any]:
    """Return the result of a search on a network, given times of ops."""
    case = NETWORKS[model](batch=batch, size=size)
    cost = measured_cost(trace_program(case.fn, *case.args), times)
    figures = measure(case, SEARCHES[search], cost, repeats=settings.repeats, seed=settings.seed)
    return {"model": model, "size": size, "batch": batch, "search": search, **figures}


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the table, and save it."""
    tables.show_rows(
        f"Networks by batches and image sizes, {settings.repeats} turns; costs are measured",
        found,
        (
            ("network", "model"),
            ("images", "batch"),
            ("pixels", "size"),
            ("search", "search"),
            ("cost, of before", cost_of_before),
            ("measured, ms", milliseconds("seconds", "before", "process", digits=1)),
            ("then, of that (95 %)", ratio("ratio")),
            ("wall, of that", ratio("wall ratio")),
            ("plain, ms", milliseconds("plain seconds", "before", "process", digits=1)),
            ("then, of that", ratio("plain ratio")),
            ("search, s", "{search s:.1f}"),
            ("ops, s", "{measuring s:.0f}"),
            ("forms", lambda row: rules({k: n for k, n in row["rules"].items() if k in FORMS})),
        ),
        settings.folder / "table.md",
    )


def main(settings: Settings) -> None:
    """Measure the networks with all searches, print the table and save it."""
    times = KernelTimes(settings.folder / "ops.sqlite", turns=settings.turns)
    every = product(settings.models, settings.sizes, settings.batches, settings.searches)
    rows = {
        f"{model}, {batch} images of {size}, {search}": partial(
            run, model, size, batch, search, times, settings
        )
        for model, size, batch, search in every
    }
    selected = "models", "batches", "sizes", "searches"
    show(store.collect(settings, "batches.json", rows, *selected), settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
