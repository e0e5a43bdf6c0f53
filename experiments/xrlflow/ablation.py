"""What rewards, and what parts of the network are worth: agents that differ in one thing.

    python -m experiments.xrlflow.ablation
    python -m experiments.xrlflow.ablation --variants "every rewrite" "at the end" analytic
    python -m experiments.xrlflow.ablation --reward analytic --folder runs/xrlflow/analytic

All begin with random weights, have as many rounds of episodes, and, where whole programs are
measured, as many of these. Hints are by the rewards, and by measured ops where whole programs are
measured. What each finds is measured end to end, in turns with all others. Needs the extras
`rewriting`, `xrlflow` and, for some models, `onnx`.
"""

import dataclasses
from collections.abc import Sequence
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
from experiments.xrlflow import games, methods
from gopt.measure.timing import check_repeats
from gopt.systems import xrlflow

AT_THE_END = 10**6  # rewrites

# Rewards, if they are others than those given, and settings of the agent that are.
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
class Settings:
    """What is compared.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`.
      variants: of `VARIANTS`.
      reward: of variants that have no other, of `experiments.xrlflow.games.REWARDS`.
      measurements: whole programs that a variant measures of each model.
      updates: rounds of episodes, at most.
      repeats: turns in which the fastest of each are timed once more, and all in the end.
      seed: of everything random.
      folder: where figures, the table, checkpoints and times are kept.
      agent: settings of the agent by default.
    """

    models: tuple[str, ...] = ("NasRNN", "ResNet-18", "SqueezeNet, ONNX")
    variants: tuple[str, ...] = tuple(VARIANTS)
    reward: str = "end to end"
    measurements: int = 100
    updates: int = 20
    repeats: int = 12
    seed: int = 0
    folder: Path = Path("runs/xrlflow/ablation")
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(episodes=2, learning_rate=1e-3, unit=1.0)
    )

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)
        check_names("variants", self.variants, VARIANTS)
        check_names("reward", [self.reward], games.REWARDS)
        check_repeats(self.repeats)


def run(name: str, settings: Settings) -> dict[str, Any]:
    """Returns what all variants make of a model."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    found = {"TASO": methods.search("TASO", played, clocks)}
    for variant in settings.variants:
        other, changes = VARIANTS[variant]
        reward = other or settings.reward
        agent = dataclasses.replace(settings.agent, **changes)
        params, agent = methods.begin("random", agent, settings.seed)
        play = methods.Play(
            params,
            agent,
            reward,
            settings.measurements if reward == "end to end" else 10**9,
            settings.updates,
            settings.repeats,
            settings.seed,
            settings.folder / "play" / variant.replace(" ", "_").replace(",", ""),
        )
        found[variant] = methods.player("X-RLflow", played, clocks, play)
        jax.clear_caches()
    clocks.programs.close()
    rows = methods.finished(played, found, clocks, repeats=settings.repeats, seed=settings.seed)
    return {"model": name, "found": rows}


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table, and saves it."""
    common.show(
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
    """Returns what the last round of episodes told."""
    told = found["history"][-1][key] if found["history"] else ""
    return f"{told:.3f}" if isinstance(told, float) else str(told)


def main(settings: Settings) -> None:
    """Runs all variants on all models, prints the table and saves it."""
    rows, kept = list[dict[str, Any]](), Rows(settings.folder / "rows", about(settings, "models"))
    common.save_settings(settings.folder, settings)
    for name in settings.models:
        rows.append(kept.of(name, partial(run, name, settings)))
        common.save_json(settings.folder / "ablation.json", rows)
    show(rows, settings)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
