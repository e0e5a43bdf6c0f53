"""What the searches of rewriting take: time and memory, and how they end.

    python -m experiments.rewrite.searching
    python -m experiments.rewrite.searching --models NasRNN DALL-E --searches saturation

Costs are those of the roofline, and nothing is measured but the search. Each has a process of its
own; memory is what the peak of that is above what it was when the search began. Needs the extra
`rewriting`.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.progress import track

from experiments import common
from experiments.cases import check_names
from experiments.rewrite.models import EVERY, MODELS
from experiments.rewrite.searches import SEARCHES
from gopt.program import trace_program
from gopt.rewriting import RULES, Terms, read, roofline
from gopt.rewriting.pricing import Prices


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`; by default those of the papers, `MODELS`.
      searches: of `experiments.rewrite.searches.SEARCHES`; by default all.
      folder: where the table and the figures are saved.
    """

    models: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    folder: Path = Path("runs/rewrite/searching")

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)
        check_names("searches", self.searches, SEARCHES)


def run(name: str, search: str) -> dict[str, Any]:
    """Returns what a search takes, and what it finds; call it in a new process."""
    case, cost, terms = EVERY[name](), roofline(), Terms()
    program = trace_program(case.fn, *case.args)
    constant = [k == 0 for k, arg in enumerate(case.args) for _ in jax.tree.leaves(arg)]
    roots = read(terms, program, constant)
    before, size = Prices(terms, cost).program(roots), len(terms.live(roots))
    begin, memory = time.perf_counter(), _peak()
    found = SEARCHES[search](terms, roots, cost, RULES)
    return {
        "model": name,
        "search": search,
        "terms": size,
        "cost": (before, found.cost),
        "s": time.perf_counter() - begin,
        "visited": found.visited,
        "bytes": _peak() - memory,
        "stopped": found.stopped,
    }


def _peak() -> int:
    """Returns the most memory that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table, and saves it."""
    common.show(
        "Searches by roofline: programs visited, or terms in the e-graph",
        ("model", "terms", "search", "cost, of before", "s", "visited", "MiB", "ended"),
        [
            (
                row["model"],
                row["terms"],
                row["search"],
                f"{row['cost'][1] / row['cost'][0]:.4f}",
                f"{row['s']:.2f}",
                row["visited"],
                f"{row['bytes'] / 2**20:.0f}",
                row["stopped"],
            )
            for row in found
        ],
        settings.folder / "table.md",
    )


def main(settings: Settings) -> None:
    """Measures all searches on all models, prints the table and saves it with the figures."""
    spawn, found = multiprocessing.get_context("spawn"), list[dict[str, Any]]()
    runs = list(product(settings.models or MODELS, settings.searches or SEARCHES))
    for model, search in track(runs, "models and searches"):
        with ProcessPoolExecutor(1, mp_context=spawn, initializer=common.start) as pool:
            found.append(pool.submit(run, model, search).result())
        common.save_json(settings.folder / "searching.json", found)
    common.save_settings(settings.folder, settings)
    show(found, settings)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
