"""Ablate rewards and parts of the network: agents that differ in one thing.

    python -m experiments.xrlflow.ablation
    python -m experiments.xrlflow.ablation --variants "every rewrite" "at the end" analytic
    python -m experiments.xrlflow.ablation --reward analytic --folder runs/xrlflow/analytic

All agents start with random weights, and have equal numbers of episode rounds. Where whole programs
are measured, they also have equal numbers of measurements. Hints use the reward's costs, or
measured ops where whole programs are measured. All resulting programs are measured end to end, in
interleaved rounds. Needs the extras `rewriting`, `xrlflow` and, for some models, `onnx`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games, methods

AT_THE_END = 10**6  # rewrites

# Rewards and settings of the agent that differ from the given ones.
VARIANTS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "default": (None, {}),
    "every rewrite": (None, {"every": 1}),
    "at the end": (None, {"every": AT_THE_END}),
    "summed ops": ("summed ops", {}),
    "summed ops, every rewrite": ("summed ops", {"every": 1}),
    "analytic": ("analytic", {}),
    "analytic, every rewrite": ("analytic", {"every": 1}),
    "flat head": (None, {"head": "flat"}),
    "whole pooling": (None, {"pooling": "whole"}),
    "no hints": (None, {"hints": False}),
    "linear sizes": (None, {"sizes": "linear"}),
    "linear sizes, M 512": (None, {"sizes": "linear", "largest": 512.0}),
    "as published": (
        None,
        {"head": "flat", "pooling": "whole", "hints": False, "sizes": "linear"},
    ),
}


@dataclass(frozen=True)
class Settings(methods.Settings):
    """Settings of the comparison; `reward` applies to variants that name no reward.

    Attributes:
      models: models to rewrite.
      variants: variants of rewards and of parts of the network.
      folder: folder of figures, the table, checkpoints and times.
    """

    models: tuple[str, ...] = choice(EVERY, ("NasRNN", "ResNet-18", "SqueezeNet, ONNX"))
    variants: tuple[str, ...] = choice(VARIANTS)
    updates: int = at_least(1, 20)
    folder: Path = Path("runs/xrlflow/ablation")


def run(name: str, settings: Settings) -> dict[str, Any]:
    """Return the results of all variants on a model."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    found = {"TASO": methods.search("TASO", played, clocks)}
    for variant in settings.variants:
        other, changes = VARIANTS[variant]
        reward = other or settings.reward
        agent = dataclasses.replace(settings.agent, **changes)
        params, agent = methods.begin("random", agent, settings.seed)
        play = settings.play(
            params,
            agent,
            settings.folder / "play" / variant.replace(" ", "_").replace(",", ""),
            reward=reward,
            measurements=settings.measurements if reward == "end to end" else 10**9,
        )
        found[variant] = methods.player("X-RLflow", played, clocks, play)
        jax.clear_caches()
    clocks.programs.close()
    rows = methods.finished(played, found, clocks, repeats=settings.repeats, seed=settings.seed)
    return {"model": name, "found": rows}


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the table, and save it."""
    tables.show(
        f"Process time, of the model as read (95 % of {settings.repeats} turns, one seed)",
        (
            *("variant", *(row["model"] for row in rows)),
            *("the best by its reward", "programs it was told", "s"),
        ),
        [
            (
                name,
                *(methods.of_read(row["found"], name) for row in rows),
                *(
                    ", ".join(_last(row["found"][name], key) for row in rows).strip(", ")
                    for key in ("best", "measured")
                ),
                ", ".join(f"{row['found'][name]['s']:.0f}" for row in rows),
            )
            for name in ("TASO", *settings.variants)
        ],
        settings.folder / "ablation.md",
    )


def _last(found: dict[str, Any], key: str) -> str:
    """Return a metric of the last round of episodes."""
    told = found["history"][-1][key] if found["history"] else ""
    return f"{told:.3f}" if isinstance(told, float) else str(told)


def main(settings: Settings) -> None:
    """Run all variants on all models, print the table and save it."""
    rows = {name: partial(run, name, settings) for name in settings.models}
    show(store.collect(settings, "ablation.json", rows, "models"), settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
