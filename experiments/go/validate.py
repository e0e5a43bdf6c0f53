"""What a policy is worth where it was not trained: the same searches with and without training.

    python -m experiments.go.validate --weights runs/go/policy/policy.npz

Training steps of families that are neither in training nor in the table are searched from one
device and from where METIS places them, first with untrained policies, then with those that are
given. Settings are to be chosen by this table, not by the rows of the paper.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.progress import track

from experiments import common
from experiments.go import training as trainer
from experiments.go.case import OBJECTIVE
from gopt.parallel import spread
from gopt.systems import go

STARTS = ("one device", "METIS")  # of each graph in turn, as of `trainer.pools`


@dataclass(frozen=True)
class Settings:
    """What is compared.

    Attributes:
      weights: policies that place, and of the same tasks.
      explore: shares of the moves that are drawn uniformly; by default that of each policy.
      devices: numbers of devices.
      iterations: of a search, after which gains are shown.
      seeds: searches of each graph and start; with untrained policies, each has one of its own.
      seed: of everything random.
      folder: where the table and all gains are saved.
    """

    weights: tuple[Path, ...]
    explore: tuple[float, ...] = ()
    devices: tuple[int, ...] = (2, 4)
    iterations: tuple[int, ...] = (5, 20, 50)
    seeds: int = 4
    seed: int = 0
    folder: Path = Path("runs/go/validation")

    def __post_init__(self) -> None:
        if not self.iterations or min(self.iterations) < 1:
            raise ValueError(f"iterations is {self.iterations}: expected numbers, 1 at least")
        if self.seeds < 1:
            raise ValueError(f"seeds is {self.seeds}: expected 1 at least")


def gains(params: Any, pool: trainer.Pool, settings: Settings, policy: go.Settings) -> np.ndarray:
    """Returns log(cost / that of the start) after each of `Settings.iterations`, `[S, R, T]`.

    Args:
      params: of the policy of each run, `[S, ...]`.
      pool: the searches, `[R, ...]`.
      settings: of the comparison.
      policy: settings of the policy.
    """
    count = len(pool.start.cost)
    each = jax.tree.map(lambda x: jnp.repeat(x, count, 0), params)
    again = jax.tree.map(lambda x: jnp.concatenate([x] * settings.seeds), pool)
    keys = jax.random.split(jax.random.key(settings.seed), settings.seeds * count)
    found = searched(each, keys, again, steps=max(settings.iterations), policy=policy)
    at = np.array(settings.iterations) - 1
    return np.asarray(found).reshape(settings.seeds, count, -1)[..., at]


@partial(jax.jit, static_argnames=("steps", "policy"))
def searched(
    params: Any, keys: jax.Array, pool: trainer.Pool, *, steps: int, policy: go.Settings
) -> jax.Array:
    """Returns log(cost / that of the start) after each iteration of searches, `[R, steps]`."""

    def one(row: tuple[Any, jax.Array, trainer.Pool]) -> jax.Array:
        params, key, (problem, inputs, order, start) = row
        simulator = go.simulator_of(problem, OBJECTIVE, order)
        run = partial(go.rollout, iterations=steps, settings=policy)
        return jnp.log(run(key, params, inputs, start, simulator)[2] / start.cost)

    each: jax.Array = spread(lambda *rows: jax.lax.map(one, rows))(params, keys, pool)
    return each


def compared(settings: Settings) -> list[tuple[str, Any, go.Settings]]:
    """Returns what is compared: a name, parameters of each run, and settings of a policy.

    Raises:
      ValueError: there is no policy, one does not place, or they decide of other groups or tasks.
    """
    if not settings.weights:
        raise ValueError("weights are not given: expected those of some policies")
    policies = {str(path): go.load_policy(path) for path in settings.weights}
    kinds = {(policy.tasks, policy.levels) for _, policy in policies.values()}
    if len(kinds) > 1 or "placement" not in next(iter(kinds))[0]:
        raise ValueError(f"policies decide {kinds}: expected the same, and placement")
    found: list[tuple[str, Any, go.Settings]] = []
    for name, (params, policy) in policies.items():
        repeated = jax.tree.map(lambda x: jnp.repeat(x[None], settings.seeds, 0), params)
        for explore in settings.explore or (policy.explore,):
            found.append((name, repeated, dataclasses.replace(policy, explore=explore)))
    return found


def main(settings: Settings) -> None:
    """Runs the comparison."""
    common.start()
    policies = compared(settings)
    policy = policies[0][2]
    pools = trainer.pools(trainer.VALIDATION, settings.devices, policy)
    first = jax.tree.map(lambda x: x[0], pools[0].inputs)
    init = partial(go.init_params, settings=policy)
    keys = jax.random.split(jax.random.key(settings.seed), settings.seeds)
    policies.insert(0, ("untrained", jax.vmap(init, (0, None))(keys, first), policy))
    rows, saved = [], []
    for name, params, sizes in track(policies, "searches"):
        found = np.concatenate([gains(params, pool, settings, sizes) for pool in pools], 1)
        saved.append({"policy": name, "explore": sizes.explore, "log ratio": found})
        cells = [name, f"{sizes.explore:g}"]
        for start in range(len(STARTS)):
            shorter = 100 * (1 - np.exp(found[:, start :: len(STARTS)].mean(1)))  # [S, T]
            cells += ["{:.1f} ± {:.1f}".format(*common.mean_interval(x)) for x in shorter.T]
        rows.append(cells)
    evaluations = [step * policy.evaluations_per_iteration + 1 for step in settings.iterations]
    header = ["policy", "uniform"]
    header += [f"{start}, {count}" for start in STARTS for count in evaluations]
    common.save_settings(settings.folder, settings)
    common.save_json(settings.folder / "gains.json", saved)
    title = (
        f"% shorter than the start after so many evaluations, {len(trainer.VALIDATION)} models on "
        f"{' and '.join(map(str, settings.devices))} devices, {settings.seeds} searches"
    )
    common.show(title, header, rows, settings.folder / "table.md")
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
