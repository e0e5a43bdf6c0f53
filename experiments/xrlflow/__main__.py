"""X-RLflow against TASO, Tensat, PET, and random episodes, by whole programs measured through XLA.

    python -m experiments.xrlflow
    python -m experiments.xrlflow --models SqueezeNet --measurements 50 --folder runs/squeezenet

Each model is rewritten by all. Searches cost programs by their ops, measured one by one; the agent,
and episodes that learn nothing, measure whole programs now and then, as many of them each; half of
the episodes go on from the fastest program that is known, but those of "random". Of the three
fastest of each, what an agent's likeliest rewrites lead to, and the model as read, the one that is
fastest again is taken. What comes out is measured in the end, all programs of a model in turns.
Agents start as the one that ships, from random weights, or from a file of
`experiments.xrlflow.pretraining` (`--weights`).

Resumes where it was interrupted: models and seeds that are done are kept, and training goes on from
its checkpoints. The agents of the first seed are saved, for `experiments.xrlflow.shapes`. Needs the
extras `rewriting` and `xrlflow`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import tyro

from experiments import common
from experiments.cases import check_names
from experiments.rewrite.models import EVERY
from experiments.rows import Rows, about
from experiments.xrlflow import games, methods, report
from gopt.systems import xrlflow

MODELS = (
    *("BERT", "ViT", "DALL-E", "T-T", "Inception-v3", "SqueezeNet", "ResNeXt-50"),
    *(f"{name}, matrices alone" for name in ("BERT", "ViT", "DALL-E", "T-T")),
)
# Of rows. Since 2, ops are measured with weights that are as cold as the model's, and what an agent
# would do at once is a finalist.
_VERSION = 2


@dataclass(frozen=True)
class Settings:
    """What is compared.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`.
      baselines: of `experiments.xrlflow.methods.BASELINES`.
      players: of `experiments.xrlflow.methods.PLAYERS`.
      reward: of episodes, of `experiments.xrlflow.games.REWARDS`.
      measurements: whole programs that each player measures of each model.
      updates: rounds of episodes, at most.
      repeats: turns in which the fastest of each are timed once more, and all in the end.
      weights: of the agent to begin with: "shipped", "random", or a file.
      seeds: runs of each player.
      seed: of everything random in the first.
      folder: where figures, tables, checkpoints and times are kept.
      agent: its settings, where it begins with random weights; and those of episodes and training.
    """

    models: tuple[str, ...] = MODELS
    baselines: tuple[str, ...] = tuple(methods.BASELINES)
    players: tuple[str, ...] = tuple(methods.PLAYERS)
    reward: str = "end to end"
    measurements: int = 100
    updates: int = 40
    repeats: int = 12
    weights: str = "shipped"
    seeds: int = 3
    seed: int = 0
    folder: Path = Path("runs/xrlflow")
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(episodes=2, learning_rate=1e-3, unit=1.0)
    )

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)
        check_names("baselines", self.baselines, methods.BASELINES)
        check_names("players", self.players, methods.PLAYERS)
        check_names("reward", [self.reward], games.REWARDS)
        for name in ("measurements", "updates", "repeats", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")


def run(name: str, seeds: Sequence[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """Yields what all make of a model, by seeds; searches draw nothing, and are run once."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    searched = {each: methods.search(each, played, clocks) for each in settings.baselines}
    for seed in seeds:
        params, agent = methods.begin(settings.weights, settings.agent, seed)
        play = methods.Play(
            params,
            agent,
            settings.reward,
            settings.measurements,
            settings.updates,
            settings.repeats,
            seed,
            settings.folder / "play" / f"seed_{seed}",
        )
        found = {each: methods.player(each, played, clocks, play) for each in settings.players}
        if seed == settings.seed and "X-RLflow" in found:
            saved, trained = settings.folder / "agents" / f"{name}.npz", found["X-RLflow"].params
            xrlflow.save(saved, trained, agent, origin=common.origin(settings))
        found |= searched
        clocks.programs.close()
        came = methods.finished(played, found, clocks, repeats=settings.repeats, seed=seed)
        yield {"model": name, "seed": seed, "found": came}
        jax.clear_caches()  # programs of all models at once are more than a process may map


def _about(settings: Settings) -> dict[str, Any]:
    """Returns the settings that all rows of a folder have."""
    played = {name: methods.PLAYERS[name]._asdict() for name in settings.players}
    kept = about(settings, "models", "seeds", "seed")
    return kept | {"version": _VERSION, "played": played}


def main(settings: Settings) -> None:
    """Runs all on all models, prints the tables and saves them."""
    rows, kept = list[dict[str, Any]](), Rows(settings.folder / "rows", _about(settings))
    common.save_settings(settings.folder, settings)
    for name in settings.models:
        seeds = range(settings.seed, settings.seed + settings.seeds)
        missing = [seed for seed in seeds if kept.find(f"{name}, seed {seed}") is None]
        for row in run(name, missing, settings) if missing else ():
            kept.keep(f"{name}, seed {row['seed']}", row)
        told = [row for seed in seeds if (row := kept.find(f"{name}, seed {seed}"))]
        report.draw(told, settings.players, settings.folder / "curves" / f"{name}.png")
        rows += told
        common.save_json(settings.folder / "xrlflow.json", rows)
    report.show(rows, settings.baselines, settings.players, settings.repeats, settings.folder)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
