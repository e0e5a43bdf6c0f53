"""Train an initial agent for others, on models that are not in the tables.

    python -m experiments.xrlflow.pretraining --folder runs/xrlflow/pretraining

The models are small, so that a program is compiled and measured soon, and a rewrite is a large part
of it. In the end the initial and the trained agent each rewrite models of other families at once,
by their likeliest rewrites. These programs are measured once, so small differences are noise.
Resumes where it was interrupted; the file is `agent.npz` in the folder. Needs the extras
`rewriting`, `xrlflow` and `onnx`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import choice
from experiments.harness.plots import save_figure
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games, methods, training
from gopt.plots.style import legend, new_figure
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
class Settings(command_line.Settings):
    """Settings of the training.

    Attributes:
      models: models from `MODELS`.
      reward: name from `experiments.xrlflow.games.REWARDS`.
      measurements: most programs of each model that are measured. Training on a model ends when
        they are spent.
      updates: most rounds of episodes.
      weights: initial weights of the agent: "random", "shipped", or a file.
      seed: seed of everything random.
      validation: models that are rewritten in the end, from `experiments.rewrite.models.EVERY`.
      folder: folder of checkpoints, times, and the result.
      agent: settings of the network, episodes, and training.
    """

    models: tuple[str, ...] = choice(MODELS)
    reward: str = choice(games.REWARDS, "end to end")
    measurements: int = 200
    updates: int = 18
    weights: str = "random"
    seed: int = 0
    validation: tuple[str, ...] = choice(EVERY, VALIDATION)
    folder: Path = Path("runs/xrlflow/pretraining")
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(
            width=32, horizon=50, episodes=10, learning_rate=1e-3, unit=1.0
        )
    )


def at_once(
    name: str, agents: Mapping[str, Any], clocks: games.Clocks, reward: str, agent: xrlflow.Settings
) -> tuple[str, ...]:
    """Return the name of a model, and times of agents' likeliest rewrites as shares of its own."""
    played = games.game(name, EVERY[name]())
    agent = dataclasses.replace(agent, horizon=xrlflow.Settings.horizon)  # these models are larger
    seconds, cost = clocks.seconds(played, reward), clocks.cost(played, reward)
    seat = training.seat(played, seconds, cost, agent, 1 + len(agents))
    shares = [training.likeliest(seat, params).share for params in agents.values()]
    return name, *(f"{share:.4f}" for share in shares)


def gained(history: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the mean gain of episodes over models in each round, and its mean over ten rounds."""
    count = max(row["update"] for row in history) + 1
    rounds = [
        float(np.mean([row["reward"] for row in history if row["update"] == k]))
        for k in range(count)
    ]
    return rounds, [float(np.mean(rounds[max(k - 9, 0) : k + 1])) for k in range(count)]


def draw(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the gain of episodes in each round, as from `gained`."""
    rounds, means = gained(history)
    figure, (axes,) = new_figure([2.4])
    axes.plot(rounds, color="0.75", label="a round")
    axes.plot(means, label="the last ten rounds")
    axes.set_xlabel("rounds of an episode of each model")
    axes.set_ylabel("reward of an episode (%)")
    legend(axes, columns=2)
    save_figure(path, figure)


def main(settings: Settings) -> None:
    """Train an agent, and save it."""
    clocks = games.clocks(settings.folder)
    params, agent = methods.begin(settings.weights, settings.agent, settings.seed)
    seats = []
    for name in settings.models:
        played = games.game(name, forward(name, **MODELS[name]))
        seconds = clocks.seconds(played, settings.reward)
        cost = clocks.cost(played, settings.reward)
        seats.append(training.seat(played, seconds, cost, agent, settings.measurements))
    playing = training.Playing(
        reward=settings.reward,
        updates=settings.updates,
        measurements=settings.measurements,
        seed=settings.seed,
    )
    came = training.play(seats, params, agent, playing, settings.folder / "play")
    saved = settings.folder / "agent.npz"
    xrlflow.save(saved, came.params, agent, origin=store.origin(settings))
    store.save_json(settings.folder / "history.json", came.history)
    draw(came.history, settings.folder / "learning.png")
    tables.show(
        "The best program of each model, as a share of the model as it is",
        ("model", settings.reward),
        [(name, f"{best[0].share:.4f}") for name, best in came.best.items()],
        settings.folder / "models.md",
    )
    agents = {"before": params, "trained": came.params}
    tables.show(
        "What an agent makes of other models at once, as a share of the model as it is (once)",
        ("model", *agents),
        [at_once(name, agents, clocks, settings.reward, agent) for name in settings.validation],
        settings.folder / "validation.md",
    )
    clocks.programs.close()


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
