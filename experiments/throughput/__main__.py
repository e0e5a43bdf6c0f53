"""Measure candidates per second: gopt, and compiled decoders, simulators and other libraries.

    python -m experiments.throughput
    python -m experiments.throughput --parts dispatch

Parts are costs of list order ("graphs", "sizes" of random graphs, "populations"), whole searches,
priority dispatch, and fusion. All functions of a row are timed in one run, in interleaved rounds,
on candidates that are already on the device. Their costs are first checked to be equal bit for bit.
The least of several rounds counts, wall time and CPU time of all threads. Compilation is not timed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import Column, given
from experiments.throughput import dispatch, fusion
from experiments.throughput.graphs import FAMILIES, GRAPHS
from experiments.throughput.list_order import BOTH, COSTS, compare, exponents
from experiments.throughput.searches import GRAPH as SEARCHED
from experiments.throughput.searches import search
from experiments.throughput.timing import machine, rate, ratio

OPS: tuple[Column, ...] = (("graph", "graph"), ("ops", "ops"))
COUNT: Column = ("candidates", "population")
COMPILED: tuple[Column, ...] = (
    ("gopt, 1/s", rate("gopt")),
    ("compiled, 1/s", rate("compiled")),
    ("ratio", ratio("compiled")),
    ("of CPU time", ratio("compiled", "cpu")),
)
LIST_ORDER: tuple[Column, ...] = (
    *(*OPS, ("uses", "uses"), COUNT, ("cost", "cost")),
    *(*COMPILED, ("queue", "queue")),
)
PARTS: dict[str, Sequence[Column]] = {
    "graphs": (*LIST_ORDER, ("obvious, 1/s", rate("obvious")), ("ratio", ratio("obvious"))),
    "sizes": LIST_ORDER,
    "populations": LIST_ORDER,
    "searches": (
        *((key, key) for key in ("search", "population", "evaluations")),
        ("best peak, MiB", given("best", lambda row: f"{row['best'] / 2**20:.1f}")),
        ("s", "{seconds[wall]:.2f}"),
        ("CPU s", "{seconds[cpu]:.2f}"),
    ),
    "dispatch": (
        *(*OPS, ("devices", "devices"), COUNT, ("served", "served"), *COMPILED),
        (f"{dispatch.LIST_ORDER}, 1/s", rate(dispatch.LIST_ORDER)),
    ),
    "fusion": (
        *(*OPS, ("configurable", "configurable"), COUNT),
        ("ops in", lambda row: "several kernels" if row["clones"] else "one"),
        *COMPILED,
    ),
}
EXPONENTS: tuple[Column, ...] = (
    *(("graph", "graph"), ("cost", "cost")),
    *(("gopt", "{gopt:.2f}"), ("compiled", "{compiled:.2f}")),
)


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      parts: parts to measure.
      population: candidates for the graphs of about 1000 ops, and for fusion.
      populations: population sizes for one graph, to show the effect of the population.
      sizes: numbers of ops of random graphs, to show the effect of the size.
      size_population: candidates for the random graphs of all sizes.
      obvious: candidates for the obvious loop, which is slow.
      evaluations: budget of a search.
      search_populations: candidates in a generation of a search.
      rounds: rounds of timing.
      seed: seed of graphs and candidates.
      folder: folder of figures and tables.
    """

    parts: tuple[str, ...] = choice(PARTS)
    population: int = at_least(1, 1024)
    populations: tuple[int, ...] = at_least(1, (1, 16, 64, 128, 256, 1024, 4096, 16384, 65536))
    sizes: tuple[int, ...] = at_least(1, (200, 1000, 5000, 20_000, 80_000))
    size_population: int = at_least(1, 128)
    obvious: int = at_least(1, 8)
    evaluations: int = at_least(1, 5000)
    search_populations: tuple[int, ...] = at_least(1, (100, 1000))
    rounds: int = at_least(1, 5)
    seed: int = 0
    folder: Path = Path("runs/throughput")


def rows(settings: Settings) -> dict[str, Mapping[str, Callable[[], Any]]]:
    """Return functions that make rows, by part and name."""
    how: Any = {"rounds": settings.rounds, "seed": settings.seed}
    whole = {"population": settings.population, **how}
    return {
        "graphs": {
            name: partial(compare, name, draw, BOTH, obvious_population=settings.obvious, **whole)
            for name, draw in GRAPHS.items()
        },
        "sizes": {
            f"{family}, {ops} ops, {cost}": partial(
                compare,
                family,
                partial(draw, settings.seed, ops),
                cost,
                population=settings.size_population,
                **how,
            )
            for (family, draw), ops, cost in product(FAMILIES.items(), settings.sizes, COSTS)
        },
        "populations": {
            f"{count}": partial(
                compare, SEARCHED, GRAPHS[SEARCHED], COSTS[0], population=count, **how
            )
            for count in settings.populations
        },
        "searches": {
            f"{count}": partial(search, count, evaluations=settings.evaluations, **how)
            for count in settings.search_populations
        },
        "dispatch": {
            f"{name}, {devices} devices": partial(dispatch.compare, name, devices, **whole)
            for name, devices in product(GRAPHS, dispatch.DEVICES)
        },
        "fusion": {name: partial(fusion.compare_step, name, **whole) for name in fusion.STEPS},
    }


def main(settings: Settings) -> None:
    """Measure, print the tables, and save them with their figures."""
    makes = rows(settings)
    for part in settings.parts:
        made = {f"{part}, {name}": make for name, make in makes[part].items()}
        several = "parts", "sizes", "populations", "search_populations"
        found = store.collect(settings, f"{part}.json", made, *several)
        path = settings.folder / f"{part}.md"
        tables.show_rows(f"Throughput: {part}; {machine()}", found, PARTS[part], path)
        if part == "sizes":
            tables.show_rows(
                "Exponent of time in ops + uses, from 1 000 ops on",
                exponents(found),
                EXPONENTS,
                settings.folder / "exponents.md",
            )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
