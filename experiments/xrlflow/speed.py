"""Measure steps per second of episodes and of learning, and their growth with candidates.

    python -m experiments.xrlflow.speed

A candidate is observed as a patch of the program, or, as in the paper, as a whole. For both, the
size of the graph is measured, and the time of three parts: finding candidates and building the
graph, choosing, and learning from a decision. Needs the extra `xrlflow`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.runs import timed
from experiments.harness.tables import given, milliseconds
from experiments.rewrite.measuring import read_model
from experiments.rewrite.models import EVERY
from gopt.rewriting import Matcher, roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.systems import xrlflow
from gopt.workloads.cases import Case

MODELS = ("SqueezeNet", "DALL-E", "BERT", "T-T", "Inception-v3", "ResNeXt-50")


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the timing.

    Attributes:
      models: models from `experiments.rewrite.models.EVERY`.
      layers: numbers of layers of bare attention, whose candidates grow with them.
      largest: most nodes that are timed; larger graphs are only counted.
      repeats: rounds of timing; the least time counts.
      folder: folder of the tables and the figures.
      agent: sizes of the network.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    layers: tuple[int, ...] = (2, 8, 32, 64, 180)
    largest: int = 100_000
    repeats: int = at_least(1, 5)
    folder: Path = Path("runs/xrlflow/speed")
    agent: xrlflow.Settings = field(default_factory=xrlflow.Settings)


def run(name: str, make: Callable[[], Case], settings: Settings) -> list[dict[str, Any]]:
    """Return the times of steps in a model, by patches and by whole candidates."""
    jax.clear_caches()
    terms, roots, _ = read_model(make())
    agent, price = settings.agent, TermCosts(terms, roofline()).term
    params = xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=agent)
    choose, rows = xrlflow.policy(agent), []
    for how, reach in (("patches", agent.layers), ("whole", None)):

        def see(reach: int | None = reach) -> tuple[int, xrlflow.Observation]:
            order = xrlflow.in_order(terms, roots)
            found = xrlflow.candidates(Matcher(terms), roots, order, 2 * len(order))
            return len(found), xrlflow.observe(terms, roots, order, found, price, reach=reach)

        count, seen = see()
        row = {"model": name, "how": how, "candidates": count, "nodes": len(seen.kind)}
        row["seeing s"] = _least(see, settings.repeats)
        rows.append(row)
        if len(seen.kind) > settings.largest:
            continue
        padded = xrlflow.pad(seen, xrlflow.Size().holding(xrlflow.size_of(seen)))
        row["choosing s"] = _least(partial(choose, params, padded), settings.repeats)
        one = np.float32(1)
        decision = xrlflow.Decisions(padded, np.int32(0), -one, one, one, one)
        state = xrlflow.start(params, settings=agent)
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], decision)
        alone = dataclasses.replace(agent, batch=1)
        learn = partial(xrlflow.step, state, None, batch, settings=alone)
        row["learning s"] = _least(learn, settings.repeats)
    return rows


def _least(call: Callable[[], Any], repeats: int) -> float:
    """Return the least CPU time of some calls, in s."""
    jax.block_until_ready(call())  # may compile
    return min(timed(call)[1] for _ in range(repeats))


def main(settings: Settings) -> None:
    """Time all models, print the table and save it."""

    def part(name: str) -> Callable[[Any], str]:
        return given(name, milliseconds(name, digits=1))

    def per_second(*parts: str) -> Callable[[Any], str]:
        return given("learning s", lambda row: f"{1 / sum(row[each] for each in parts):.1f}")

    cases = {name: EVERY[name] for name in settings.models}
    deep = EVERY["BERT, matrices alone"]
    cases |= {f"attention, {n} layers": partial(deep, layers=n) for n in settings.layers}
    made = {name: partial(run, name, make, settings) for name, make in cases.items()}
    tables.show_rows(
        "A step of an episode, and of learning, process time",
        store.collect(settings, "speed.json", made, "models", "layers"),
        (
            ("model", "model"),
            ("candidates", "candidates"),
            ("seen as", "how"),
            ("nodes", "nodes"),
            ("candidates, ms", part("seeing s")),
            ("choosing, ms", part("choosing s")),
            ("learning, ms", part("learning s")),
            ("steps/s", per_second("seeing s", "choosing s")),
            ("learned/s", per_second("learning s")),
        ),
        settings.folder / "speed.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1)
