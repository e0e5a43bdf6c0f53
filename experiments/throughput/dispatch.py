"""How many candidates of priority dispatch are costed in a second: gopt, and a compiled peer.

    python -m experiments.throughput.dispatch

"Compiled" is an event-driven simulator in numba (`experiments.throughput.peers.dispatching`), one
candidate after another on each core; "list order" is gopt's other cost of a schedule,
`gopt.cost.schedule.execution`, of the same keys. Ops are served by priority, or first come, first
served, of the same placements. Both costs are asked for, makespan and peak memory.

Timed in turns in one run, after a check that costs are the same bit for bit; the least of several
rounds counts, wall time and CPU time of all threads. Compilation is not timed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.progress import track

from experiments import common
from experiments.throughput.evaluations import check_same, gopt_evaluation
from experiments.throughput.graphs import GRAPHS
from experiments.throughput.peers import dispatching
from experiments.throughput.timing import machine, measure
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Graph
from gopt.search.parallel import shard_candidates
from gopt.search.population import uniforms

SERVED = ("by priority", "first come")
LIST_ORDER = "list order"


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      graphs: of about 1000 ops, of `GRAPHS`.
      devices: of the machines that graphs are scheduled on.
      population: candidates.
      rounds: how often everything is timed.
      seconds: no further round of one case after this time.
      seed: of the keys.
      folder: where figures and tables are saved.
    """

    graphs: tuple[str, ...] = ("ResNeXt step", "LSTM step", "LSTM forward, 100", "Erdős-Rényi")
    devices: tuple[int, ...] = (2, 8)
    population: int = 1024
    rounds: int = 7
    seconds: float = 10.0
    seed: int = 0
    folder: Path = Path("runs/throughput_dispatch")


def compare(name: str, graph: Graph, devices: int, settings: Settings) -> dict[str, Any]:
    """Returns how fast a population of one graph is costed by all, in a record.

    Raises:
      RuntimeError: gopt and the simulator do not agree.
    """
    problem = prepare(graph, unit_rate_devices(devices))
    tables = dispatching.tables(problem)
    place = jax.jit(shard_candidates(lambda keys: keys))  # whole, on every device, as in a search
    key = jax.random.key(settings.seed)
    keys = place(uniforms(key, keys_shape(problem), settings.population))
    candidates = keys._replace(transfer=None), Keys(keys.device, None, None)
    calls: dict[str, Callable[[], Any]] = {}
    for served, given in zip(SERVED, candidates, strict=True):
        ours = partial(
            jax.jit(shard_candidates(jax.vmap(partial(dispatch.evaluate, problem)))), given
        )
        theirs = partial(dispatching.evaluate, tables, jax.device_get(given))
        check_same(f"{name}, {served}", jax.device_get(ours()), theirs())
        calls |= {f"gopt, {served}": ours, f"compiled, {served}": theirs}
    calls[LIST_ORDER] = partial(gopt_evaluation(problem, "both"), keys)
    timings = measure(calls, rounds=settings.rounds, seconds=settings.seconds)
    return {
        "graph": name,
        "ops": int(graph.num_ops),
        "devices": devices,
        "population": settings.population,
        "per_second": {
            who: {clock: settings.population / s for clock, s in timing._asdict().items()}
            for who, timing in timings.items()
        },
    }


def row(record: dict[str, Any], served: str) -> tuple[Any, ...]:
    """Returns a line of the table: one way to serve ops."""
    rates = record["per_second"]
    ours, theirs = (rates[f"{who}, {served}"] for who in ("gopt", "compiled"))
    return (
        *(record[field] for field in ("graph", "ops", "devices", "population")),
        served,
        f"{ours['wall']:,.0f}",
        f"{theirs['wall']:,.0f}",
        f"{ours['wall'] / theirs['wall']:.2f}",
        f"{ours['cpu'] / theirs['cpu']:.2f}",
        f"{rates[LIST_ORDER]['wall']:,.0f}",
    )


def main(settings: Settings) -> None:
    """Measures, prints the table and saves it."""
    common.save_settings(settings.folder, settings)
    found: list[dict[str, Any]] = []
    for name, devices in track(list(product(settings.graphs, settings.devices)), "dispatch"):
        found.append(compare(name, GRAPHS[name](), devices, settings))
        figures = {"machine": machine(), "rows": found}
        common.save_json(settings.folder / "dispatch.json", figures)
    columns = (
        *("graph", "ops", "devices", "candidates", "served"),
        *("gopt, 1/s", "compiled, 1/s", "ratio", "of CPU time", "list order, 1/s"),
    )
    title = f"Candidates/s of priority dispatch; {machine()}"
    rows = [row(record, served) for record in found for served in SERVED]
    common.show(title, columns, rows, settings.folder / "table.md")


if __name__ == "__main__":
    common.start()
    main(tyro.cli(Settings, description=__doc__))
