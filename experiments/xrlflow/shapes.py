"""Test agents on shapes that they were not trained on: other image sizes and sequence lengths.

    python -m experiments.xrlflow                 # trains an agent for each model first
    python -m experiments.xrlflow.shapes

The agent of each model plays on other shapes, without learning, with few measurements. So do its
initial agent and hill climbing. They are compared with searches, and with an agent that is trained
there. Needs the extras `rewriting` and `xrlflow`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import comparing, games, methods

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {  # the changed size and its values
    "DALL-E": ("length", (8, 32, 64)),
    "DALL-E, matrices alone": ("length", (8, 32, 64)),
    "BERT, matrices alone": ("length", (32, 128)),
    "Inception-v3": ("size", (225, 256)),
    "SqueezeNet": ("size", (160, 256)),
}

FEW = ("trained elsewhere", "as it began", "climbing")  # players with few measurements


@dataclass(frozen=True)
class Settings(methods.Settings):
    """Settings of the comparison; the measurements are for the agent that is trained there.

    Attributes:
      models: models, each in other shapes.
      baselines: searches.
      few: measurements of players that are not trained there.
      weights: initial weights of agents, see `experiments.xrlflow`.
      agents: folder of trained agents, a file for each model.
      folder: folder of figures, tables, checkpoints and times.
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
    make = partial(EVERY[name], **{axis: value})
    played = games.game(f"{name}, {axis} {value}", make())
    clocks = games.clocks(settings.folder)
    found = {each: methods.search(each, played, clocks) for each in settings.baselines}
    params, agent = methods.begin(settings.weights, settings.agent, settings.seed)
    there = settings.play(params, agent, settings.folder / "play")
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
    jax.clear_caches()  # the programs of all models exceed the memory maps of a process
    return {"model": name, axis: value, "shape": f"{axis} {value}", "found": rows}


def _trained(name: str, settings: Settings) -> str:
    """Return the file of the agent that was trained on a model."""
    return str(settings.agents / f"{name}.npz")


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


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the table, and save it."""
    by = (*settings.baselines, "trained there", *FEW)
    shares = [kept(row["found"]) for row in rows]
    tables.show(
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
    """Run all methods on all shapes, print the table and save it."""
    for name in settings.models:
        # Check that it can be read.
        methods.begin(_trained(name, settings), settings.agent, settings.seed)
    rows = {
        f"{name}, {value}": partial(run, name, value, settings)
        for name in settings.models
        for value in SHAPES[name][1]
    }
    show(store.collect(settings, "shapes.json", rows, "models"), settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
