"""Measure candidates of priority dispatch per second: gopt, and a compiled simulator.

    python -m experiments.throughput.dispatch

"Compiled" is an event-driven simulator in numba (`experiments.throughput.peers.dispatching`). Each
core costs one candidate after another. "List order" is gopt's other schedule cost,
`gopt.cost.schedule.execution`, of the same keys. Ops are dispatched by priority, or first come,
first served, with the same placements. Both makespan and peak memory are computed.

Timed in one run, in interleaved rounds, after a check that costs are equal bit for bit. The least
of several rounds counts, wall time and CPU time of all threads. Compilation is not timed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import choice
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
COMPARED = ("ResNeXt step", "LSTM step", "LSTM forward, 100", "Erdős-Rényi")


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      graphs: graphs of about 1000 ops, from `GRAPHS`.
      devices: numbers of devices of the machines.
      population: number of candidates.
      rounds: rounds of timing.
      seconds: time after which a case gets no further round, s.
      seed: seed of the keys.
      folder: folder of figures and tables.
    """

    graphs: tuple[str, ...] = choice(GRAPHS, COMPARED)
    devices: tuple[int, ...] = (2, 8)
    population: int = 1024
    rounds: int = 7
    seconds: float = 10.0
    seed: int = 0
    folder: Path = Path("runs/throughput_dispatch")


def compare(name: str, graph: Graph, devices: int, settings: Settings) -> dict[str, Any]:
    """Return a record of the speed of costing a population of one graph by each method.

    Raises:
      RuntimeError: gopt and the simulator compute different costs.
    """
    problem = prepare(graph, unit_rate_devices(devices))
    tables = dispatching.tables(problem)
    # Complete keys on every device, as in a search.
    place = jax.jit(shard_candidates(lambda keys: keys))
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


def main(settings: Settings) -> None:
    """Measure, print the table and save it."""
    made = {
        f"{name}, {devices} devices": partial(compare, name, GRAPHS[name](), devices, settings)
        for name, devices in product(settings.graphs, settings.devices)
    }
    found = store.collect(settings, "dispatch.json", made, "graphs", "devices")
    rows = [(record, served) for record in found for served in SERVED]

    def rate(who: str, clock: str = "wall") -> Callable[[Any], float]:
        return lambda row: float(row[0]["per_second"][f"{who}, {row[1]}"][clock])

    def ratio(clock: str) -> Callable[[Any], str]:
        return lambda row: f"{rate('gopt', clock)(row) / rate('compiled', clock)(row):.2f}"

    tables.show_rows(
        f"Candidates/s of priority dispatch; {machine()}",
        rows,
        (
            ("graph", lambda row: row[0]["graph"]),
            ("ops", lambda row: row[0]["ops"]),
            ("devices", lambda row: row[0]["devices"]),
            ("candidates", lambda row: row[0]["population"]),
            ("served", lambda row: row[1]),
            ("gopt, 1/s", lambda row: f"{rate('gopt')(row):,.0f}"),
            ("compiled, 1/s", lambda row: f"{rate('compiled')(row):,.0f}"),
            ("ratio", ratio("wall")),
            ("of CPU time", ratio("cpu")),
            (
                f"{LIST_ORDER}, 1/s",
                lambda row: f"{row[0]['per_second'][LIST_ORDER]['wall']:,.0f}",
            ),
        ),
        settings.folder / "table.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
