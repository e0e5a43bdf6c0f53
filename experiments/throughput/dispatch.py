"""How many candidates of priority dispatch are costed in a second: gopt, and a compiled peer.

    python -m experiments.throughput.dispatch

"Compiled" is an event-driven simulator in numba (`experiments.throughput.peers.dispatching`), one
candidate after another on each core; "list order" is gopt's other cost of a schedule,
`gopt.cost.execution`, where a candidate says in which order everything is issued. Ops are served
by priority, or first come, first served, of the same placements. All are timed in turns in one
run, after a check that costs are the same bit for bit; the least of several rounds counts, wall
time, and CPU time of all threads. Compilation is not timed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.progress import Progress

from experiments import common
from experiments.throughput.evaluations import capped, check_same, gopt_evaluation
from experiments.throughput.graphs import FAMILIES, GRAPHS
from experiments.throughput.peers import dispatching
from experiments.throughput.timing import machine, measure
from gopt.cost import dispatch
from gopt.cost.execution import Keys, keys_shape
from gopt.graph import Graph
from gopt.hardware import homogeneous
from gopt.parallel import spread
from gopt.problem import prepare
from gopt.search.population import uniforms

SERVED = ("by priority", "first come")
LIST_ORDER = "list order"


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      graphs: of about 1000 ops, of `GRAPHS`.
      families: random graphs, of `FAMILIES`.
      sizes: ops of the random graphs.
      devices: of the machines that graphs are scheduled on.
      populations: candidates.
      memory: keys of a population take so many GiB at most, else there are fewer candidates.
      rounds: how often everything is timed.
      seconds: no further round of one case after this time.
      seed: of graphs and keys.
      folder: where figures and tables are saved.
    """

    graphs: tuple[str, ...] = ("ResNeXt step", "LSTM step", "LSTM forward, 100")
    families: tuple[str, ...] = tuple(FAMILIES)
    sizes: tuple[int, ...] = (1000, 10_000)
    devices: tuple[int, ...] = (1, 2, 4, 8)
    populations: tuple[int, ...] = (64, 1024)
    memory: float = 1.0
    rounds: int = 7
    seconds: float = 10.0
    seed: int = 0
    folder: Path = Path("runs/throughput_dispatch")


def compare(
    name: str, graph: Graph, devices: int, population: int, settings: Settings
) -> dict[str, Any]:
    """Returns how fast a population of one graph is costed by all, in a record.

    Raises:
      RuntimeError: gopt and the simulator do not agree.
    """
    problem = prepare(graph, homogeneous(devices))
    tables = dispatching.tables(problem)
    population = capped(problem, population, settings.memory)
    place = jax.jit(spread(lambda keys: keys))  # whole, on every device, as in a search
    keys = place(uniforms(jax.random.key(settings.seed), keys_shape(problem), population))
    calls: dict[str, Callable[[], Any]] = {}
    given_by = keys._replace(transfer=None), Keys(keys.device, None, None)
    for served, given in zip(SERVED, given_by, strict=True):
        ours = partial(jax.jit(spread(jax.vmap(partial(dispatch.evaluate, problem)))), given)
        theirs = partial(dispatching.evaluate, tables, jax.device_get(given))
        check_same(f"{name}, {served}", jax.device_get(ours()), theirs())
        calls |= {f"gopt, {served}": ours, f"compiled, {served}": theirs}
    calls[LIST_ORDER] = partial(gopt_evaluation(problem, "both"), keys)
    timings = measure(calls, rounds=settings.rounds, seconds=settings.seconds)
    return {
        "graph": name,
        "ops": int(graph.num_ops),
        "devices": devices,
        "population": population,
        "per_second": {
            who: {clock: population / spent for clock, spent in timing._asdict().items()}
            for who, timing in timings.items()
        },
    }


def cases(settings: Settings) -> Iterator[tuple[str, Graph]]:
    """Yields the graphs and their names."""
    for name in settings.graphs:
        yield name, GRAPHS[name]()
    for family, size in product(settings.families, settings.sizes):
        yield family, FAMILIES[family](settings.seed, size)


def main(settings: Settings) -> None:
    """Measures, prints the table and saves it."""
    common.save_settings(settings.folder, settings)
    each = tuple(product(settings.devices, settings.populations))
    graphs = len(settings.graphs) + len(settings.families) * len(settings.sizes)
    found: list[dict[str, Any]] = []
    with Progress() as progress:
        task = progress.add_task("dispatch", total=graphs * len(each))
        for name, graph in cases(settings):
            for devices, population in each:
                found.append(compare(name, graph, devices, population, settings))
                figures = {"machine": machine(), "rows": found}
                common.save_json(settings.folder / "dispatch.json", figures)
                progress.advance(task)
    columns = (
        *("graph", "ops", "devices", "candidates", "served"),
        *("gopt, 1/s", "compiled, 1/s", "ratio"),
        *("gopt, 1/CPU s", "compiled, 1/CPU s", "ratio"),
        *("list order, 1/s", "1/CPU s"),
    )
    rows = [row(record, served) for record in found for served in SERVED]
    common.show("Candidates of priority dispatch", columns, rows, settings.folder / "table.md")


def row(record: dict[str, Any], served: str) -> tuple[Any, ...]:
    """Returns a line of the table: one way to serve ops."""
    line = [record[field] for field in ("graph", "ops", "devices", "population")] + [served]
    rates = record["per_second"]
    for clock in ("wall", "cpu"):
        ours, theirs = (rates[f"{who}, {served}"][clock] for who in ("gopt", "compiled"))
        line += [f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}"]
    return *line, *(f"{rates[LIST_ORDER][clock]:,.0f}" for clock in ("wall", "cpu"))


if __name__ == "__main__":
    common.start()
    main(tyro.cli(Settings, description=__doc__))
