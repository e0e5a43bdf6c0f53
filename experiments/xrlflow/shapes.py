"""Shapes that an agent was not trained on: other image sizes and lengths of sequences.

    python -m experiments.xrlflow                 # trains an agent for each model first
    python -m experiments.xrlflow.shapes

The agent of each model plays on other shapes, without learning, with few measurements, as do the
one that it began as, and hill climbing; beside them are searches, and an agent that is trained
there. Needs the extras `rewriting` and `xrlflow`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import tyro

from experiments import common
from experiments.cases import check_names
from experiments.rewrite.models import EVERY
from experiments.rows import Rows, about
from experiments.xrlflow import comparing, games, methods
from gopt.measure.timing import check_repeats
from gopt.systems import xrlflow

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {  # what is another, and how much
    "DALL-E": ("length", (8, 32, 64)),
    "DALL-E, matrices alone": ("length", (8, 32, 64)),
    "BERT, matrices alone": ("length", (32, 128)),
    "Inception-v3": ("size", (225, 256)),
    "SqueezeNet": ("size", (160, 256)),
}

FEW = ("trained elsewhere", "as it began", "climbing")  # with few measurements


@dataclass(frozen=True)
class Settings:
    """What is compared.

    Attributes:
      models: of `SHAPES`.
      baselines: of `experiments.xrlflow.methods.BASELINES`.
      few: measurements of those that are not trained there.
      measurements: of the one that is trained there.
      updates: rounds of episodes, at most.
      repeats: turns in which the fastest of each are timed once more, and all in the end.
      weights: what agents begin as, see `experiments.xrlflow`.
      agents: folder of agents that were trained, a file for each model.
      seed: of everything random.
      folder: where figures, tables, checkpoints and times are kept.
      agent: settings of episodes and training.
    """

    models: tuple[str, ...] = tuple(SHAPES)
    baselines: tuple[str, ...] = ("greedy", "TASO", "Tensat")
    few: int = 20
    measurements: int = 100
    updates: int = 40
    repeats: int = 12
    weights: str = "shipped"
    agents: Path = Path("runs/xrlflow/agents")
    seed: int = 0
    folder: Path = Path("runs/xrlflow/shapes")
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(episodes=2, learning_rate=1e-3, unit=1.0)
    )

    def __post_init__(self) -> None:
        check_names("models", self.models, SHAPES)
        check_names("baselines", self.baselines, methods.BASELINES)
        check_repeats(self.repeats)


def run(name: str, value: int, settings: Settings) -> dict[str, Any]:
    """Returns what all make of a model of another shape."""
    axis, _ = SHAPES[name]
    make = partial(EVERY[name], **{axis: value})
    played = games.game(f"{name}, {axis} {value}", make())
    clocks = games.clocks(settings.folder)
    found = {each: methods.search(each, played, clocks) for each in settings.baselines}
    params, agent = methods.begin(settings.weights, settings.agent, settings.seed)
    there = methods.Play(
        params,
        agent,
        "end to end",
        settings.measurements,
        settings.updates,
        settings.repeats,
        settings.seed,
        settings.folder / "play",
    )
    params, agent = methods.begin(_trained(name, settings), settings.agent, settings.seed)
    elsewhere = dataclasses.replace(there, params=params, settings=agent, measurements=settings.few)
    few = dataclasses.replace(there, measurements=settings.few)
    found["trained there"] = methods.player("X-RLflow", played, clocks, there)
    found["trained elsewhere"] = methods.player("agent", played, clocks, elsewhere)
    found["as it began"] = methods.player(
        "agent", played, clocks, dataclasses.replace(few, folder=settings.folder / "as it began")
    )
    found["climbing"] = methods.player("climbing", played, clocks, few)
    clocks.programs.close()
    rows = methods.finished(played, found, clocks, repeats=settings.repeats, seed=settings.seed)
    return {"model": name, axis: value, "shape": f"{axis} {value}", "found": rows}


def _trained(name: str, settings: Settings) -> str:
    """Returns the file of the agent that was trained on a model."""
    return str(settings.agents / f"{name}.npz")


def kept(found: Mapping[str, dict[str, Any]]) -> float | None:
    """Returns the gain of the agent of another shape as a share of that which is trained there.

    Gains are over the model as read, turn by turn. None if the latter is 2 % at most, or if values
    of any are wrong.
    """
    names = ("trained there", "trained elsewhere")
    if not all(found[name]["equal"] for name in ("as read", *names)):
        return None
    there, elsewhere = (1 - comparing.against(found, name, "as read")[0] for name in names)
    return elsewhere / there if there > 0.02 else None


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table, and saves it."""
    by = (*settings.baselines, "trained there", *FEW)
    shares = [kept(row["found"]) for row in rows]
    common.show(
        f"Process time, of the model as read (95 % of {settings.repeats} turns, one seed)",
        ("model", "shape", *by, "kept"),
        [
            (
                *(row["model"], row["shape"]),
                *(methods.of_read(row["found"], name) for name in by),
                "" if share is None else f"{share:.2f}",
            )
            for row, share in zip(rows, shares, strict=True)
        ],
        settings.folder / "shapes.md",
    )


def main(settings: Settings) -> None:
    """Runs all on all shapes, prints the table and saves it."""
    for name in settings.models:
        methods.begin(_trained(name, settings), settings.agent, settings.seed)  # if it can be read
    rows, done = list[dict[str, Any]](), Rows(settings.folder / "rows", about(settings, "models"))
    common.save_settings(settings.folder, settings)
    for name in settings.models:
        for value in SHAPES[name][1]:
            rows.append(done.of(f"{name}, {value}", partial(run, name, value, settings)))
            common.save_json(settings.folder / "shapes.json", rows)
            jax.clear_caches()
    show(rows, settings)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
