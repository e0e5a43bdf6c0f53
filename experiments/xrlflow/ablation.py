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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import comparing, games, methods

# Rewards and settings of the agent that differ from the given ones.
VARIANTS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "default": (None, {}),
    "every rewrite": (None, {"every": 1}),
    "at the end": (None, {"every": 10**6}),
    "summed ops": ("summed ops", {}),
    "summed ops, every rewrite": ("summed ops", {"every": 1}),
    "analytic": ("analytic", {}),
    "analytic, every rewrite": ("analytic", {"every": 1}),
    "flat head": (None, {"head": "flat"}),
    "whole pooling": (None, {"pooling": "whole"}),
    "no hints": (None, {"hints": False}),
    "linear sizes": (None, {"sizes": "linear"}),
    "linear sizes, M 512": (None, {"sizes": "linear", "largest": 512.0}),
    "as published": (None, {"head": "flat", "pooling": "whole", "hints": False, "sizes": "linear"}),
}


@dataclass(frozen=True)
class Settings(methods.Settings):
    """Settings of the comparison; `reward` applies to variants that name no reward.

    Attributes:
      models: models to rewrite.
      variants: variants of rewards and of parts of the network.
      folder: folder of figures, the table and times.
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
        own = dataclasses.replace(
            settings,
            reward=reward,
            measurements=settings.measurements if reward == "end to end" else 10**9,
            agent=dataclasses.replace(settings.agent, **changes),
        )
        params, own = methods.begin("random", own)
        found[variant] = methods.player("X-RLflow", played, clocks, params, own)
        jax.clear_caches()
    return {"model": name, "found": methods.finished(played, found, clocks, settings)}


def main(settings: Settings) -> None:
    """Run all variants on all models, print the table and save it."""
    rows = {name: partial(run, name, settings) for name in settings.models}
    found = [
        {"model": row["model"], "variant": name, "process": comparing.of_read(row["found"], name)}
        | row["found"][name]
        for row in store.collect(settings, "ablation.json", rows, "models")
        for name in ("TASO", *settings.variants)
    ]

    def best(row: dict[str, Any]) -> str:
        return f"{row['history'][-1]['best']:.3f}" if row["history"] else ""

    tables.show_rows(
        f"Process time, of the model as read (95 % of {settings.repeats} rounds, one seed)",
        found,
        (
            *((key, key) for key in ("variant", "model", "process")),
            ("best by its reward", best),
            ("rounds", lambda row: len(row["history"]) or ""),
            ("rewarded programs", lambda row: len(row["measured"]) or ""),
            ("s", "{s:.0f}"),
        ),
        settings.folder / "ablation.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
