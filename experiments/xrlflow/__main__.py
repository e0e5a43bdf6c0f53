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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from experiments.harness import command_line, store
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
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
class Settings(methods.Settings):
    """Settings of the comparison.

    Attributes:
      models: models to rewrite.
      baselines: searches.
      players: agents, and episodes that learn nothing.
      weights: weights of the agent to begin with: "shipped", "random", or a file.
      seeds: runs of each player.
      folder: where figures, tables, checkpoints and times are kept.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    baselines: tuple[str, ...] = choice(methods.BASELINES)
    players: tuple[str, ...] = choice(methods.PLAYERS)
    weights: str = "shipped"
    seeds: int = at_least(1, 3)
    folder: Path = Path("runs/xrlflow")


def run(name: str, seeds: Sequence[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield what all make of a model, by seeds; searches draw nothing, and are run once."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    searched = {each: methods.search(each, played, clocks) for each in settings.baselines}
    for seed in seeds:
        params, agent = methods.begin(settings.weights, settings.agent, seed)
        folder = settings.folder / "play" / f"seed_{seed}"
        play = settings.play(params, agent, folder, seed=seed)
        found = {each: methods.player(each, played, clocks, play) for each in settings.players}
        if seed == settings.seed and "X-RLflow" in found:
            saved, trained = settings.folder / "agents" / f"{name}.npz", found["X-RLflow"].params
            xrlflow.save(saved, trained, agent, origin=store.origin(settings))
        found |= searched
        clocks.programs.close()
        came = methods.finished(played, found, clocks, repeats=settings.repeats, seed=seed)
        yield {"model": name, "seed": seed, "found": came}
        jax.clear_caches()  # programs of all models at once are more than a process may map


def main(settings: Settings) -> None:
    """Run all on all models, print the tables and save them."""
    played = {name: methods.PLAYERS[name]._asdict() for name in settings.players}
    about = store.described(settings, "models", "seeds", "seed")
    about |= {"version": _VERSION, "played": played}
    rows, kept = list[dict[str, Any]](), store.Store(settings.folder / "rows", about)
    store.save_settings(settings.folder, settings)
    for name in settings.models:
        seeds = range(settings.seed, settings.seed + settings.seeds)
        missing = [seed for seed in seeds if kept.find(f"{name}, seed {seed}") is None]
        for row in run(name, missing, settings) if missing else ():
            kept.keep(f"{name}, seed {row['seed']}", row)
        told = [row for seed in seeds if (row := kept.find(f"{name}, seed {seed}"))]
        report.draw(told, settings.players, settings.folder / "curves" / f"{name}.png")
        rows += told
        store.save_json(settings.folder / "xrlflow.json", rows)
    report.show(rows, settings.baselines, settings.players, settings.repeats, settings.folder)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
