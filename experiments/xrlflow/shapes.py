"""Test agents on shapes that they were not trained on: other image sizes and sequence lengths.

    python -m experiments.xrlflow                 # trains an agent for each model first
    python -m experiments.xrlflow.shapes

The agent of each model plays on other shapes, without learning, with few measurements. So does its
initial agent. They are compared with searches, and with an agent that is trained there. Needs the
extras `rewriting` and `xrlflow`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import comparing, games, methods
from gopt.systems import xrlflow

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {  # the changed size and its values
    "DALL-E": ("length", (8, 32, 64)),
    "DALL-E, matrices alone": ("length", (8, 32, 64)),
    "BERT, matrices alone": ("length", (32, 128)),
    "Inception-v3": ("size", (225, 256)),
    "SqueezeNet": ("size", (160, 256)),
}


@dataclass(frozen=True)
class Settings(methods.Settings):
    """Settings of the comparison; the measurements are for the agent that is trained there.

    Attributes:
      models: models, each in other shapes.
      baselines: searches.
      few: measurements of players that are not trained there.
      weights: initial weights of agents, see `experiments.xrlflow`.
      agents: folder of trained agents, a file for each model.
      folder: folder of figures, tables and times.
    """

    models: tuple[str, ...] = choice(SHAPES)
    baselines: tuple[str, ...] = choice(methods.BASELINES, ("greedy", "TASO", "Tensat"))
    few: int = at_least(1, 20)
    weights: str = "shipped"
    agents: Path = Path("runs/xrlflow/agents")
    folder: Path = Path("runs/xrlflow/shapes")


def run(name: str, value: int, settings: Settings) -> dict[str, Any]:
    """Return the results of all methods on a model of another shape."""
    axis, _ = SHAPES[name]
    played = games.game(f"{name}, {axis} {value}", EVERY[name](**{axis: value}))
    clocks = games.clocks(settings.folder)
    found = {each: methods.search(each, played, clocks) for each in settings.baselines}
    few = dataclasses.replace(settings, measurements=settings.few)
    began, trained = settings.weights, settings.agents / f"{name}.npz"
    for column, player, weights, own in (
        ("trained there", "X-RLflow", began, settings),
        ("trained elsewhere", "agent", trained, few),
        ("as it began", "agent", began, few),
    ):
        found[column] = methods.player(player, played, clocks, *methods.begin(weights, own))
    rows = methods.finished(played, found, clocks, settings)
    return {"model": name, axis: value, "shape": f"{axis} {value}", "found": rows}


def kept(found: Mapping[str, dict[str, Any]]) -> float | None:
    """Return the gain of an agent of another shape, as a share of the gain when trained there.

    Gains are over the model as read, round by round. None if the trained agent gains at most 2 %,
    or if any values are wrong.
    """
    names = ("trained there", "trained elsewhere")
    if not all(found[name]["equal"] for name in ("as read", *names)):
        return None
    there, elsewhere = (1 - comparing.against(found, name, "as read")[0] for name in names)
    return elsewhere / there if there > 0.02 else None


def main(settings: Settings) -> None:
    """Run all methods on all shapes, print the table and save it."""
    for name in settings.models:
        xrlflow.load(settings.agents / f"{name}.npz")  # a missing file fails early
    rows = {
        f"{name}, {value}": partial(run, name, value, settings)
        for name in settings.models
        for value in SHAPES[name][1]
    }

    def of(name: str) -> Callable[[Any], str]:
        return lambda row: comparing.of_read(row["found"], name)

    def share(row: dict[str, Any]) -> str:
        share = kept(row["found"])
        return "" if share is None else f"{share:.2f}"

    by = (*settings.baselines, "trained there", "trained elsewhere", "as it began")
    tables.show_rows(
        f"Process time, of the model as read (95 % of {settings.repeats} rounds, one seed)",
        store.collect(settings, "shapes.json", rows, "models"),
        (
            *((key, key) for key in ("model", "shape")),
            *((name, of(name)) for name in by),
            ("kept", share),
        ),
        settings.folder / "shapes.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
