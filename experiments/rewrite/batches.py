"""Where forms of ops that are equal in part pay: residual networks, by batches and image sizes.

    python -m experiments.rewrite.batches
    python -m experiments.rewrite.batches --models ResNet-18 --batches 1 16 --sizes 128

The pair of networks on which PET is compared with TASO. All searches have the same rules and the
same measured costs of ops. `gopt.rewriting.partial_equivalence` has forms of ops as well, and three
turns of 100 programs; as many as backtracking has where it says 300. Where it says plain, both were
compiled without YNNPACK. Needs the extra `rewriting`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.progress import track

from experiments import common
from experiments.cases import Case, check_names, forward
from experiments.rewrite.measuring import measure, measured_cost
from experiments.rewrite.networks import resnet18
from experiments.rewrite.searches import SEARCHES
from experiments.rows import Rows, about
from gopt.fusion import KernelTimes
from gopt.program.program import trace_program
from gopt.rewriting.search.pet_mutants import MUTATIONS

NETWORKS: dict[str, Callable[..., Case]] = {
    "ResNet-18": resnet18,
    "ResNeXt-50": partial(forward, "resnext"),
}
FORMS = {name for each in MUTATIONS.values() for name in each}


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      models: of `NETWORKS`; by default all.
      batches: how many images there are.
      sizes: of images, in pixels.
      searches: of `experiments.rewrite.searches.SEARCHES`.
      turns: in which each op is timed; the least counts.
      repeats: turns in which whole programs are timed.
      seed: of weights and inputs.
      folder: where figures, the table and times of ops are saved.
    """

    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = (1, 4, 16, 64)
    sizes: tuple[int, ...] = (128, 224)
    searches: tuple[str, ...] = ("backtracking", "backtracking, 300", "partial equivalence")
    turns: int = 6
    repeats: int = 8
    seed: int = 0
    folder: Path = Path("runs/rewrite/batches")

    def __post_init__(self) -> None:
        check_names("models", self.models, NETWORKS)
        check_names("searches", self.searches, SEARCHES)
        for name in ("batches", "sizes", "turns", "repeats"):
            if (least := np.min(getattr(self, name))) < 1:
                raise ValueError(f"{name} has {least}: expected 1 at least")


def run(
    model: str, size: int, batch: int, search: str, times: KernelTimes, settings: Settings
) -> dict[str, Any]:
    """Returns what a search makes of a network, given times of ops."""
    case = NETWORKS[model](batch=batch, size=size)
    cost = measured_cost(trace_program(case.fn, *case.args), times)
    figures = measure(case, SEARCHES[search], cost, repeats=settings.repeats, seed=settings.seed)
    return {"model": model, "size": size, "batch": batch, "search": search, **figures}


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table, and saves it."""
    common.show(
        f"Networks by batches and image sizes, {settings.repeats} turns; costs are measured",
        (
            *("network", "images", "pixels", "search", "cost, of before", "measured, ms"),
            *("then, of that (95 %)", "wall, of that", "plain, ms", "then, of that"),
            *("search, s", "ops, s", "forms"),
        ),
        [
            (
                *(row["model"], row["batch"], row["size"], row["search"]),
                f"{row['cost'][1] / row['cost'][0]:.4f}",
                f"{1e3 * min(row['seconds']['before']['process']):.1f}",
                *map(common.interval, (row["ratio"], row["wall ratio"])),
                f"{1e3 * min(row['plain seconds']['before']['process']):.1f}",
                common.interval(row["plain ratio"]),
                f"{row['search s']:.1f}",
                f"{row['measuring s']:.0f}",
                "; ".join(f"{count} × {name}" for name, count in _forms(row["rules"]).items()),
            )
            for row in found
        ],
        settings.folder / "table.md",
    )


def _forms(rules: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in rules.items() if name in FORMS}


def main(settings: Settings) -> None:
    """Measures the networks with all searches, prints the table and saves it."""
    selected = "models", "batches", "sizes", "searches"
    kept = Rows(settings.folder / "rows", about(settings, *selected))
    common.save_settings(settings.folder, settings)
    times = KernelTimes(settings.folder / "ops.jsonl", turns=settings.turns)
    found: list[dict[str, Any]] = []
    runs = product(settings.models or NETWORKS, settings.sizes, settings.batches, settings.searches)
    for model, size, batch, search in track(list(runs), "networks and searches"):
        name = f"{model}, {batch} images of {size}, {search}"
        found.append(kept.of(name, partial(run, model, size, batch, search, times, settings)))
        common.save_json(settings.folder / "batches.json", found)
    show(found, settings)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
