"""Steps per second of episodes and of learning, and how they grow with candidates.

    python -m experiments.xrlflow.speed

A candidate is seen as a patch of the program, or, as the paper has it, as a whole. For both: how
large the graph is that the network reads, and how long it takes to find candidates and to lay out
the graph, to choose, and to learn from a decision. Needs the extra `xrlflow`.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from rich.progress import track

from experiments import common
from experiments.cases import Case, check_names
from experiments.rewrite import transformers
from experiments.rewrite.models import EVERY
from experiments.xrlflow.games import Game, game
from gopt.measure.timing import check_repeats
from gopt.rewriting import Matcher, roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.systems import xrlflow
from gopt.systems.xrlflow.episodes import Decisions
from gopt.systems.xrlflow.training import step

MODELS = ("SqueezeNet", "DALL-E", "BERT", "T-T", "Inception-v3", "ResNeXt-50")


@dataclass(frozen=True)
class Settings:
    """What is timed.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`.
      layers: of attention alone, whose candidates grow with them.
      largest: nodes that are still timed: of more there is only the number.
      repeats: how often each is timed; the least counts.
      folder: where the tables and the figures are saved.
      agent: sizes of the network.
    """

    models: tuple[str, ...] = MODELS
    layers: tuple[int, ...] = (2, 8, 32, 64, 180)
    largest: int = 100_000
    repeats: int = 5
    folder: Path = Path("runs/xrlflow/speed")
    agent: xrlflow.Settings = field(default_factory=xrlflow.Settings)

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)
        check_repeats(self.repeats)


def cases(settings: Settings) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yields models, and attention of more and more layers."""
    for name in settings.models:
        yield name, EVERY[name]
    sizes = {"length": 64, "hidden": 1024, "heads": 16}
    for layers in settings.layers:
        name = f"attention, {layers} layers"
        yield name, partial(transformers.bare_attention, layers=layers, **sizes)


def run(played: Game, settings: Settings) -> list[dict[str, Any]]:
    """Returns what steps take in a model, by patches and by whole candidates."""
    terms, roots = played.terms, played.roots
    agent, price = settings.agent, TermCosts(terms, roofline()).term
    params = xrlflow.init_params(jax.random.key(0), xrlflow.smallest(), settings=agent)
    choose, rows = xrlflow.policy(agent), []
    for how, reach in (("patches", agent.layers), ("whole", None)):

        def see(reach: int | None = reach) -> tuple[int, xrlflow.Observation]:
            order = xrlflow.in_order(terms, roots)
            found = xrlflow.candidates(Matcher(terms), roots, order, 2 * len(order))
            return len(found), xrlflow.observe(terms, roots, order, found, price, reach=reach)

        count, seen = see()
        row = {"model": played.name, "how": how, "candidates": count, "nodes": len(seen.kind)}
        row["seeing s"] = _least(see, settings.repeats)
        rows.append(row)
        if len(seen.kind) > settings.largest:
            continue
        padded = xrlflow.pad(seen, xrlflow.Size().holding(xrlflow.size_of(seen)))
        state = xrlflow.TrainState(params, xrlflow.optimizer(agent).init(params))
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], _decision(padded))
        row["choosing s"] = _least(partial(choose, params, padded), settings.repeats)
        learn = partial(step, state, batch, settings=dataclasses.replace(agent, batch=1))
        row["learning s"] = _least(learn, settings.repeats)
    return rows


def _decision(seen: xrlflow.Observation) -> Decisions:
    one = np.float32(1)
    return Decisions(seen, np.int32(0), -one, one, one, one)


def _least(call: Callable[[], Any], repeats: int) -> float:
    """Returns the least process time of some calls, in s."""
    jax.block_until_ready(call())  # it may be compiled
    taken = []
    for _ in range(repeats):
        begin = time.process_time()
        jax.block_until_ready(call())
        taken.append(time.process_time() - begin)
    return min(taken)


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table, and saves it."""
    parts = ("seeing s", "choosing s", "learning s")

    def per_second(row: dict[str, Any]) -> tuple[str, str]:
        if "learning s" not in row:
            return "", ""
        return f"{1 / (row[parts[0]] + row[parts[1]]):.1f}", f"{1 / row[parts[2]]:.1f}"

    common.show(
        "A step of an episode, and of learning, process time",
        (
            *("model", "candidates", "seen as", "nodes"),
            *("candidates, ms", "choosing, ms", "learning, ms", "steps/s", "learned/s"),
        ),
        [
            (
                *(row[name] for name in ("model", "candidates", "how", "nodes")),
                *(f"{1e3 * row[part]:.1f}" if part in row else "" for part in parts),
                *per_second(row),
            )
            for row in rows
        ],
        settings.folder / "speed.md",
    )


def main(settings: Settings) -> None:
    """Times all, prints the table and saves it."""
    common.save_settings(settings.folder, settings)
    rows = list[dict[str, Any]]()
    for name, make in track(list(cases(settings)), "models"):
        rows += run(game(name, make()), settings)
        common.save_json(settings.folder / "speed.json", rows)
        jax.clear_caches()
    show(rows, settings)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start(1)
    main(given)
