"""What the searches of rewriting take: time and memory, how they end, and what matching takes.

    python -m experiments.rewrite.searching
    python -m experiments.rewrite.searching --models NasRNN DALL-E --searches saturation

Costs are those of the roofline, and nothing is measured but the search. Each has a process of its
own; memory is by how much the peak of that rises during the search: what fits into what tracing had
needed does not count. Needs the extra `rewriting`.
"""

import gc
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import tyro
from rich.progress import track

from experiments import common
from experiments.cases import check_names
from experiments.rewrite.measuring import read_model
from experiments.rewrite.models import EVERY, MODELS
from experiments.rewrite.searches import SEARCHES
from experiments.rows import Rows, about
from gopt.rewriting import RULES, Match, Matcher, roofline
from gopt.rewriting.cost.pricing import TermCosts


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
    terms, roots, _ = read_model(EVERY[name]())
    cost, size = roofline(), len(terms.live(roots))
    before = TermCosts(terms, cost).program(roots)
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


def match(name: str) -> dict[str, Any]:
    """Returns what it takes to find all matches of all rules, and those after one rewrite."""
    terms, roots, _ = read_model(EVERY[name]())
    matcher = Matcher(terms)
    found, first = _timed(lambda: matcher.matches(roots))
    after = (matcher.apply(roots, each) for each in found)
    program = next((each for each in after if each not in (None, tuple(roots))), tuple(roots))
    _, again = _timed(lambda: matcher.matches(program))
    return {
        "model": name,
        "terms": len(terms.live(roots)),
        "matches": len(found),
        "first s": first,
        "again s": again,
    }


def _timed(call: Callable[[], list[Match]]) -> tuple[list[Match], float]:
    gc.collect()  # Python's own, of all that tracing has left, would fall into what is timed
    begin = time.perf_counter()
    found = call()
    return found, time.perf_counter() - begin


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


def show_matching(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table of what matching takes, and saves it."""
    common.show(
        f"Matches of all {len(RULES)} rules in the model, and after one rewrite",
        ("model", "terms", "matches", "s", "after one rewrite, s"),
        [
            (
                *(row["model"], row["terms"], row["matches"]),
                *(f"{row[key]:.3f}" for key in ("first s", "again s")),
            )
            for row in found
        ],
        settings.folder / "matching.md",
    )


def main(settings: Settings) -> None:
    """Measures all searches on all models, prints the tables and saves them with the figures."""
    kept = Rows(settings.folder / "rows", about(settings, "models", "searches"))
    common.save_settings(settings.folder, settings)
    models = settings.models or tuple(MODELS)
    runs = list(product(models, settings.searches or SEARCHES))
    found, matching = list[dict[str, Any]](), list[dict[str, Any]]()
    for each in track(runs, "models and searches"):
        found.append(kept.of(", ".join(each), partial(_apart, run, *each)))
        common.save_json(settings.folder / "searching.json", found)
    for model in track(models, "matching"):
        matching.append(kept.of(f"{model}, matching", partial(_apart, match, model)))
        common.save_json(settings.folder / "matching.json", matching)
    show(found, settings)
    show_matching(matching, settings)


def _apart(call: Callable[..., dict[str, Any]], *args: str) -> dict[str, Any]:
    """Returns what a function does in a new process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=common.start) as pool:
        return pool.submit(call, *args).result()


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
