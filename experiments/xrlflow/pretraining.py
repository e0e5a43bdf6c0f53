"""Train an initial agent for others, on models that are not in the tables.

    python -m experiments.xrlflow.pretraining --folder runs/xrlflow/pretraining

The models are small, so that a program is compiled and measured soon, and a rewrite is a large part
of it. In the end the initial and the trained agent each rewrite models of other families at once,
by their likeliest rewrites. These programs are measured once, so small differences are noise.
Times of programs are kept if it is interrupted. The file is `agent.npz` in the folder. Needs the
extras `rewriting`, `xrlflow` and `onnx`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games, methods, training
from gopt.systems import xrlflow
from gopt.workloads.cases import forward

MODELS: dict[str, dict[str, Any]] = {  # workloads of `gopt.workloads`, with their sizes
    "conformer": {"batch": 1, "length": 160, "text_length": 20, "layers": 1},
    "densenet": {"size": 128, "blocks": (2, 4)},
    "efficientnet": {"size": 128, "blocks": (1,) * 7},
    "gpt2": {"batch": 1, "length": 64, "layers": 2, "vocabulary": 1000},
    "hrnet": {"size": 128, "modules": (1,), "blocks": 1},
    "mlp_mixer": {"size": 128, "layers": 2},
    "mobilenet_v2": {"size": 128, "blocks": (1,) * 7},
    "random_network": {"batch": 1, "length": 64, "layers": 8, "seed": 3},
    "randwire": {"batch": 1, "size": 128, "stages": 2, "nodes": 8},
    "t5": {"batch": 1, "source_length": 64, "target_length": 32, "layers": 2, "vocabulary": 1000},
}
# Families that are neither above nor in the table against searches.
VALIDATION = ("NasRNN", "ShuffleNet, ONNX", "AlexNet, ONNX")


@dataclass(frozen=True)
class Settings(training.Settings):
    """Settings of the training.

    Attributes:
      models: models from `MODELS`.
      weights: initial weights of the agent: "random", "shipped", or a file.
      validation: models that are rewritten in the end, from `experiments.rewrite.models.EVERY`.
      folder: folder of times and of the result.
    """

    models: tuple[str, ...] = choice(MODELS)
    measurements: int = at_least(1, 200)
    updates: int = at_least(1, 18)
    weights: str = "random"
    validation: tuple[str, ...] = choice(EVERY, VALIDATION)
    folder: Path = Path("runs/xrlflow/pretraining")
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(
            width=32, horizon=50, episodes=10, learning_rate=1e-3, unit=1.0
        )
    )


def at_once(
    name: str, agents: Mapping[str, Any], clocks: games.Clocks, settings: Settings
) -> tuple[str, ...]:
    """Return the name of a model, and times of agents' likeliest rewrites as shares of its own."""
    # These models are larger.
    agent = dataclasses.replace(settings.agent, horizon=xrlflow.Settings.horizon)
    own = dataclasses.replace(settings, agent=agent, measurements=1 + len(agents))
    seat = training.Seat(games.game(name, EVERY[name]()), clocks, own)
    shares = [seat.likeliest(params).share for params in agents.values()]
    return name, *(f"{share:.4f}" for share in shares)


def gained(history: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return rows of a table: ten rounds each, and the mean reward of an episode in them."""
    tens: dict[int, list[Any]] = {}
    for row in history:
        tens.setdefault(row["update"] // 10, []).append((row["update"] + 1, row["reward"]))
    return [
        (f"{ten[0][0]} to {ten[-1][0]}", f"{np.mean([reward for _, reward in ten]):.1f}")
        for ten in tens.values()
    ]


def main(settings: Settings) -> None:
    """Train an agent, and save it."""
    clocks = games.clocks(settings.folder)
    params, own = methods.begin(settings.weights, settings)
    played = [games.game(name, forward(name, **MODELS[name])) for name in settings.models]
    seats = [training.Seat(each, clocks, own) for each in played]
    trained, history = training.play(seats, params, training.Player(), own)
    saved = settings.folder / "agent.npz"
    xrlflow.save(saved, trained, own.agent, origin=store.origin(settings))
    store.save_json(settings.folder / "history.json", history)
    tables.show(
        "Mean reward of an episode, hundredths of the model's time",
        ("rounds", "reward"),
        gained(history),
        settings.folder / "learning.md",
    )
    tables.show(
        "The best program of each model, as a share of the model as it is",
        ("model", settings.reward),
        [(each.game.name, f"{each.best[0].share:.4f}") for each in seats],
        settings.folder / "models.md",
    )
    agents = {"before": params, "trained": trained}
    tables.show(
        "What an agent makes of other models at once, as a share of the model as it is (once)",
        ("model", *agents),
        [at_once(name, agents, clocks, own) for name in settings.validation],
        settings.folder / "validation.md",
    )
    clocks.programs.close()


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
