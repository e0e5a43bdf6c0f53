"""Measure fusion configurations per second: gopt, and compiled decoders on all cores.

"Compiled" is numba; each core costs one candidate after another. It is compared with gopt's own
algorithm in numba, too: many candidates as bits of a word.

    python -m experiments.throughput.fusion

Timed in one run, in interleaved rounds, after a check that costs are equal bit for bit. The least
wall time of several rounds counts. Configurations are random, with half of the bits set.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import choice
from experiments.harness.graphs import Spec, build
from experiments.throughput.peers import fusions
from experiments.throughput.timing import measure
from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem, prepare_fusion
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import cpu_sockets
from gopt.search.parallel import shard_candidates

# From 1 000 to 20 000 ops.
STEPS: dict[str, dict[str, Any]] = {
    "rnnlm": {"length": 10},
    "densenet": {},
    "hrnet": {},
    "nasnet_a": {"cells": 10},
}


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: training steps, from `STEPS`.
      populations: numbers of candidates.
      rounds: rounds of timing.
      seconds: time after which a case gets no further round, s.
      seed: seed of the configurations.
      folder: folder of figures and tables.
    """

    models: tuple[str, ...] = choice(STEPS)
    populations: tuple[int, ...] = (64, 1024)
    rounds: int = 7
    seconds: float = 10.0
    seed: int = 0
    folder: Path = Path("runs/throughput_fusion")


def compare(name: str, problem: FusionProblem, population: int, settings: Settings) -> Any:
    """Return a record of the speed of costing a population by each method.

    Raises:
      RuntimeError: methods compute different costs.
    """
    rng = np.random.default_rng(settings.seed)
    fuse = rng.random((population, len(problem.compute))) < 0.5
    given = jax.tree.map(jax.numpy.asarray, problem)
    place = jax.jit(shard_candidates(lambda bits: bits))  # on every device
    bits = place(jax.numpy.asarray(fuse))
    ours = partial(
        jax.jit(shard_candidates(partial(jax.vmap(fusion_cost, (None, 0)), given))), bits
    )
    tables = fusions.tables(problem)
    peers = {peer: partial(fn, tables, fuse) for peer, fn in fusions.PEERS.items()}
    for peer, costs in peers.items():
        if not np.array_equal(ours(), costs()):
            raise RuntimeError(f"{name}: the costs differ, {peer}")
    calls: dict[str, Callable[[], Any]] = {"gopt": ours, **peers}
    taken = measure(calls, rounds=settings.rounds, seconds=settings.seconds)
    return {
        "model": name,
        "ops": int(problem.num_ops),
        "configurable": int(problem.num_choices),
        "population": population,
        "clones": bool(problem.allow_duplication),
        **{who: population / timing.wall for who, timing in taken.items()},
    }


def run(name: str, settings: Settings) -> list[dict[str, Any]]:
    """Return the records of a model, with and without ops in several kernels."""
    graph, found = build(Spec(name, STEPS[name], is_step=True)), []
    for allow_duplication, population in product((False, True), settings.populations):
        rules = replace(RULES["cpu"], allow_duplication=allow_duplication)
        problem = prepare_fusion(graph, cpu_sockets(1), rules=rules)
        found.append(compare(name, problem, population, settings))
    return found


def main(settings: Settings) -> None:
    """Measure, print the table and save it."""
    made = {name: partial(run, name, settings) for name in settings.models}
    found = store.collect(settings, "fusion.json", made, "models")
    tables.show_rows(
        "Configurations of fusion",
        found,
        (
            ("model, step", "model"),
            ("ops", "ops"),
            ("configurable", "configurable"),
            ("candidates", "population"),
            ("ops in", lambda row: "several kernels" if row["clones"] else "one"),
            ("gopt, 1/s", "{gopt:.0f}"),
            ("of compiled", lambda row: f"{row['gopt'] / row['alone']:.2f}"),
            (
                "of its own algorithm, compiled",
                lambda row: f"{row['gopt'] / row['as words']:.2f}",
            ),
        ),
        settings.folder / "table.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
