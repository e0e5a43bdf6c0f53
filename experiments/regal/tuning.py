"""Search for the Betas and the elite bias of tuned BRKGA on training graphs.

    python -m experiments.regal.tuning

Every round compares the best levels so far with variants that differ in a few places, and keeps the
best. All kept levels are compared again with other random numbers, so that less of their advantage
is luck. The best of them is compared with standard BRKGA, again with other random numbers; this
reward is printed. The first graph of each training family is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.harness import command_line, store
from experiments.harness import graphs as programs
from experiments.harness.command_line import choice
from experiments.regal import graphs, tuned
from experiments.regal import training as trainer
from gopt.cost.schedule.objectives import OBJECTIVES
from gopt.search.parallel import shard_candidates
from gopt.systems import regal

CHANGED = 0.3  # share of levels that a variant changes
STEP = 3.0  # standard deviation of a change
WORST = -2.0  # least reward: a schedule that does not fit the memory costs many times one that does


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the search.

    Attributes:
      objective: objective to minimise.
      rounds: rounds of comparisons.
      candidates: levels that are compared in a round.
      confirmations: searches of each kept candidate on every graph.
      seed: seed of everything random.
      folder: folder of the results.
      training: settings of the runs, with the budget of the tables, because the best levels depend
        on the budget.
    """

    objective: str = choice(OBJECTIVES, "peak_memory")
    rounds: int = 30
    candidates: int = 8
    confirmations: int = 4
    seed: int = 0
    folder: Path = Path("runs/tuning")
    training: trainer.Training = field(
        default_factory=partial(trainer.Training, evaluations=5000, variants=0)
    )


def neighbour(rng: np.random.Generator, levels: tuned.Levels) -> tuned.Levels:
    """Return levels with a few small changes."""
    leaves, structure = jax.tree.flatten(levels)
    step = rng.normal(0, STEP, len(leaves)) * (rng.random(len(leaves)) < CHANGED)
    moved = np.clip(np.rint(np.array(leaves) + step), 0, tuned.WIDEST).astype(int)
    return jax.tree.unflatten(structure, moved.tolist())


def tune(pools: Sequence[regal.Example], settings: Settings) -> list[dict[str, Any]]:
    """Return the best levels of each round, and their mean reward."""
    rng = np.random.default_rng(settings.seed)
    best, found = tuned.STANDARD, []
    for _ in track(range(settings.rounds), "tuning"):
        tried = [best, *(neighbour(rng, best) for _ in range(settings.candidates - 1))]
        key = jax.random.key(int(rng.integers(2**31)))
        each = np.concatenate([rewards(key, pool, tried, settings) for pool in pools])
        best = tried[int(np.argmax(each.mean(0)))]
        found.append({"levels": best._asdict(), "reward": float(each.mean(0).max())})  # type: ignore[call-overload]
    return found


def confirm(
    key: jax.Array,
    pools: Sequence[regal.Example],
    tried: Sequence[tuned.Levels],
    settings: Settings,
) -> list[float]:
    """Return the mean reward of each of several levels over several searches."""
    keys = jax.random.split(key, settings.confirmations)
    each = [
        rewards(key, pool, tried, settings) for key in track(keys, "confirming") for pool in pools
    ]
    return np.concatenate(each).mean(0).tolist()


def rewards(
    key: jax.Array, pool: regal.Example, tried: Sequence[tuned.Levels], settings: Settings
) -> np.ndarray:
    """Return the rewards of levels on the graphs of a pool, at least `WORST`, `[G, A]`."""
    graphs, levels = len(pool.standard), len(tried)
    each = [tuned.action(jax.tree.map(lambda x: x[0], pool.problem), one) for one in tried]
    actions = jax.tree.map(lambda *x: jnp.tile(jnp.stack(x), (graphs, *(1,) * x[0].ndim)), *each)
    problem, standard = jax.tree.map(
        lambda x: jnp.repeat(x, levels, 0), (pool.problem, pool.standard)
    )
    keys = jnp.repeat(jax.random.split(key, graphs), levels)  # equal random numbers for all
    search = _search(settings.objective, settings.training.evaluations)
    found = np.asarray(search(keys, problem, standard, actions)).reshape(graphs, levels)
    return np.maximum(found, WORST)


@cache
def _search(objective: str, evaluations: int) -> Any:
    """Return the compiled rewards of actions, spread over devices."""
    return jax.jit(
        shard_candidates(
            partial(
                regal.rewards,
                objective=objective,
                evaluations=evaluations,
                settings=tuned.SETTINGS,
            )
        )
    )


def main(settings: Settings) -> None:
    """Search, and print and save the results."""
    store.save_settings(settings.folder, settings)
    firsts = {spec.workload: spec for spec in reversed(graphs.SPLITS["train"])}
    pools = trainer.pools(
        [programs.build(spec) for spec in track(firsts.values(), "tracing training graphs")],
        objective=settings.objective,
        training=settings.training,
        seed=settings.seed,
    )
    found = tune(pools, settings)
    to_choose, to_tell = jax.random.split(jax.random.key(settings.seed))
    kept = list(dict.fromkeys(tuned.Levels(**row["levels"]) for row in found))
    confirmed = confirm(to_choose, pools, kept, settings)
    best = kept[int(np.argmax(confirmed))]
    standard, reward = confirm(to_tell, pools, [tuned.STANDARD, best], settings)
    saved = {
        "rounds": found,
        "confirmed": [
            {"levels": levels._asdict(), "reward": each}
            for levels, each in zip(kept, confirmed, strict=True)
        ],
        "best": {"levels": best._asdict(), "reward": reward, "standard": standard},
    }
    store.save_json(settings.folder / "tuning.json", saved)
    print(f"reward {reward:.4f}, that of standard BRKGA {standard:.4f}: {best}")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
