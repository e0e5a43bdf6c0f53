"""Search for the Betas and the elite bias of tuned BRKGA on training graphs.

Every round compares the best levels so far with variants that differ in a few places, and keeps the
best. All kept levels are compared again with other random numbers, so that less of their advantage
is luck. The best of them is compared with standard BRKGA, again with other random numbers; this
reward is printed. The first graph of each training family is used.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.harness import store
from experiments.regal import training as trainer
from experiments.regal import tuned
from experiments.regal.graphs import SPLITS
from experiments.regal.settings import Settings, Training
from gopt.search.parallel import shard_candidates
from gopt.systems import regal

ROUNDS = 30  # rounds of comparisons
CANDIDATES = 8  # levels that are compared in a round
CONFIRMATIONS = 4  # searches of each kept candidate on every graph
CHANGED = 0.3  # share of levels that a variant changes
STEP = 3.0  # standard deviation of a change
WORST = -2.0  # least reward: a schedule that does not fit the memory costs many times one that does


def neighbour(rng: np.random.Generator, levels: tuned.Levels) -> tuned.Levels:
    """Return levels with a few small changes."""
    leaves, structure = jax.tree.flatten(levels)
    step = rng.normal(0, STEP, len(leaves)) * (rng.random(len(leaves)) < CHANGED)
    moved = np.clip(np.rint(np.array(leaves) + step), 0, tuned.WIDEST).astype(int)
    return jax.tree.unflatten(structure, moved.tolist())


Rewards = Callable[[jax.Array, Sequence[tuned.Levels]], np.ndarray]


def tune(rewards: Rewards, seed: int) -> list[tuned.Levels]:
    """Return the best levels of each round.

    Args:
      rewards: function that maps a key and levels to the mean reward of each.
      seed: seed of everything random.
    """
    rng = np.random.default_rng(seed)
    found = [tuned.STANDARD]
    for _ in track(range(ROUNDS), "tuning"):
        tried = [found[-1], *(neighbour(rng, found[-1]) for _ in range(CANDIDATES - 1))]
        each = rewards(jax.random.key(int(rng.integers(2**31))), tried)
        found.append(tried[int(np.argmax(each))])
    return found[1:]


def confirm(rewards: Rewards, key: jax.Array, tried: Sequence[tuned.Levels]) -> list[float]:
    """Return the mean reward of each of several levels over several searches."""
    keys = jax.random.split(key, CONFIRMATIONS)
    return np.mean([rewards(key, tried) for key in track(keys, "confirming")], 0).tolist()


def mean_rewards(
    pools: Sequence[regal.Example],
    objective: str,
    evaluations: int,
    key: jax.Array,
    tried: Sequence[tuned.Levels],
) -> np.ndarray:
    """Return the mean reward of levels on the graphs of all pools, `[A]`; see `WORST`."""
    search, found = _search(objective, evaluations), []
    for pool in pools:
        count, levels = len(pool.standard), len(tried)
        each = [tuned.action(jax.tree.map(lambda x: x[0], pool.problem), one) for one in tried]
        actions = jax.tree.map(
            lambda *x, count=count: jnp.tile(jnp.stack(x), (count, *(1,) * x[0].ndim)), *each
        )
        # Equal random numbers for all levels.
        rows = jax.random.split(key, count), pool.problem, pool.standard
        keys, *repeated = jax.tree.map(lambda x, levels=levels: jnp.repeat(x, levels, 0), rows)
        found.append(np.asarray(search(keys, *repeated, actions)).reshape(count, levels))
    return np.maximum(np.concatenate(found), WORST).mean(0)


@cache
def _search(objective: str, evaluations: int) -> Any:
    """Return the compiled rewards of actions, spread over devices."""
    how: dict[str, Any] = {"objective": objective, "evaluations": evaluations}
    return jax.jit(shard_candidates(partial(regal.rewards, settings=tuned.SETTINGS, **how)))


def run(settings: Settings) -> None:
    """Search, and print and save the results.

    Searches have the budget of the tables, because the best levels depend on it.
    """
    training = Training(evaluations=settings.evaluations, variants=0)
    firsts = {spec.workload: spec for spec in reversed(SPLITS["train"])}
    pools = trainer.pools([*firsts.values()], dataclasses.replace(settings, training=training))
    rewards = partial(mean_rewards, pools, settings.objective, settings.evaluations)
    to_choose, to_tell = jax.random.split(jax.random.key(settings.seed))
    kept = list(dict.fromkeys(tune(rewards, settings.seed)))
    confirmed = confirm(rewards, to_choose, kept)
    best = kept[int(np.argmax(confirmed))]
    standard, reward = confirm(rewards, to_tell, [tuned.STANDARD, best])
    saved = {
        "confirmed": [
            {"levels": levels._asdict(), "reward": each}
            for levels, each in zip(kept, confirmed, strict=True)
        ],
        "best": {"levels": best._asdict(), "reward": reward, "standard": standard},
    }
    store.save_json(settings.folder / "tuning.json", saved)
    print(f"reward {reward:.4f}, that of standard BRKGA {standard:.4f}: {best}")
