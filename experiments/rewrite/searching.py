"""Measure time and memory of rewriting searches, why they end, and the time of matching.

    python -m experiments.rewrite.searching
    python -m experiments.rewrite.searching --models NasRNN DALL-E --searches saturation

Costs come from the roofline, and only the search is measured. Each search has its own process.
Memory is the rise of the peak during the search, so it excludes what fits into the memory that
tracing had needed. Needs the extra `rewriting`.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import apart, choice, peak_bytes
from experiments.rewrite.measuring import cost_of_before, read_model
from experiments.rewrite.models import EVERY, MODELS
from experiments.rewrite.searches import SEARCHES
from gopt.rewriting import RULES, Match, Matcher, roofline
from gopt.rewriting.cost.pricing import TermCosts


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `experiments.rewrite.models.EVERY`; by default the papers' models,
        `MODELS`.
      searches: searches from `experiments.rewrite.searches.SEARCHES`; by default all.
      folder: folder of the table and the figures.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    searches: tuple[str, ...] = choice(SEARCHES)
    folder: Path = Path("runs/rewrite/searching")


def run(name: str, search: str) -> dict[str, Any]:
    """Return time, memory and result of a search; call it in a new process."""
    terms, roots, _ = read_model(EVERY[name]())
    cost, size = roofline(), len(terms.live(roots))
    before = TermCosts(terms, cost).program(roots)
    begin, memory = time.perf_counter(), peak_bytes()
    found = SEARCHES[search](terms, roots, cost, RULES)
    return {
        "model": name,
        "search": search,
        "terms": size,
        "cost": (before, found.cost),
        "s": time.perf_counter() - begin,
        "visited": found.num_visited,
        "bytes": peak_bytes() - memory,
        "stopped": found.stop_reason,
    }


def match(name: str) -> dict[str, Any]:
    """Return the time of finding all matches of all rules, and only those after one rewrite."""
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
    gc.collect()  # else Python collects tracing's garbage during the timing
    begin = time.perf_counter()
    found = call()
    return found, time.perf_counter() - begin


def main(settings: Settings) -> None:
    """Measure all searches on all models, print the tables and save them with the figures."""
    every = product(settings.models, settings.searches)
    rows = {", ".join(each): partial(apart, run, *each) for each in every}
    tables.show_rows(
        "Searches by roofline: programs visited, or terms in the e-graph",
        store.collect(settings, "searching.json", rows, "models", "searches"),
        (
            *((key, key) for key in ("model", "terms", "search")),
            ("cost, of before", cost_of_before),
            ("s", "{s:.2f}"),
            ("visited", "visited"),
            ("MiB", lambda row: f"{row['bytes'] / 2**20:.0f}"),
            ("ended", "stopped"),
        ),
        settings.folder / "table.md",
    )
    rows = {f"{model}, matching": partial(apart, match, model) for model in settings.models}
    tables.show_rows(
        f"Matches of all {len(RULES)} rules in the model, and after one rewrite",
        store.collect(settings, "matching.json", rows, "models", "searches"),
        (
            *((key, key) for key in ("model", "terms", "matches")),
            ("s", "{first s:.3f}"),
            ("after one rewrite, s", "{again s:.3f}"),
        ),
        settings.folder / "matching.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
