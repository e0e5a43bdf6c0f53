"""Compare searches with and without training, on models that no policy was trained on.

    python -m experiments.go.validate --weights runs/go/policy/policy.npz

The models are training steps of families that are neither in training nor in the table. Searches
start from one device and from a cut by METIS. They use an untrained policy, whose moves are
uniform, and the given policies. Choose settings by this table, not by the rows of the paper.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.go import training as trainer
from experiments.go.case import OBJECTIVE
from experiments.harness import command_line, statistics, store, tables
from experiments.harness.command_line import UsageError, at_least, choice
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.search.parallel import shard_candidates
from gopt.systems import go

Run = Callable[..., tuple[Any, Any, jax.Array]]  # signature of `go.rollout`


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the comparison.

    Attributes:
      weights: policies that place ops, and search alike except for `explore`.
      explore: shares of moves that are drawn uniformly; by default each policy's own.
      devices: numbers of devices.
      starts: starts of searches, from `trainer.STARTS`.
      iterations: iterations of a search after which gains are shown.
      seeds: searches of each graph and start, with the same random keys for each policy; at least
        2, for an interval.
      seed: seed of everything random.
      folder: folder of the table and all gains.
    """

    weights: tuple[Path, ...]
    explore: tuple[float, ...] = ()
    devices: tuple[int, ...] = at_least(1, (2, 4))
    starts: tuple[str, ...] = choice(trainer.STARTS)
    iterations: tuple[int, ...] = at_least(1, (5, 20, 50))
    seeds: int = at_least(2, 4)
    seed: int = 0
    folder: Path = Path("runs/go/validation")

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not 0 < share < 1 for share in self.explore):
            raise UsageError(f"explore is {self.explore}: expected between 0 and 1")


def gains(
    key: jax.Array,
    params: Any,
    pool: go.Searches,
    policy: go.Settings,
    *,
    iterations: Sequence[int],
    seeds: int,
    simulate: trainer.Simulate = go.simulator_of,
    run: Run = go.rollout,
) -> np.ndarray:
    """Return log(cost ÷ cost of the start) after some iterations of searches, `[S, R, T]`.

    The value is NaN where the start does not fit the memory.

    Args:
      key: random key.
      params: parameters of the policy.
      pool: searches, `[R, ...]`.
      policy: settings of the policy.
      iterations: iterations after which gains are returned, `T` numbers.
      seeds: runs of each search, `S`.
      simulate: function that makes a simulator of decisions.
      run: function that runs a search, with the signature of `go.rollout`.
    """
    count, steps = len(pool.start.cost), max(iterations)
    again = jax.tree.map(lambda x: jnp.concatenate([x] * seeds), pool)
    keys = jax.random.split(key, seeds * count)
    found = searched(params, keys, again, steps=steps, policy=policy, simulate=simulate, run=run)
    each = np.asarray(found).reshape(seeds, count, -1)[..., np.array(iterations) - 1]
    return np.where(np.asarray(pool.start.cost)[:, None] < MAX_TICKS, each, np.nan)


@partial(jax.jit, static_argnames=("steps", "policy", "simulate", "run"))
def searched(
    params: Any,
    keys: jax.Array,
    pool: go.Searches,
    *,
    steps: int,
    policy: go.Settings,
    simulate: trainer.Simulate,
    run: Run,
) -> jax.Array:
    """Return log(cost ÷ cost of the start) after each iteration of searches, `[R, steps]`."""

    def one(row: tuple[jax.Array, go.Searches]) -> jax.Array:
        key, (problem, inputs, order, start) = row
        simulator = simulate(problem, OBJECTIVE, order)
        *_, costs = run(key, params, inputs, start, simulator, iterations=steps, settings=policy)
        return jnp.log(costs / start.cost)

    each: jax.Array = shard_candidates(lambda *rows: jax.lax.map(one, rows))(keys, pool)
    return each


def compared(settings: Settings) -> list[tuple[str, Any, go.Settings]]:
    """Return the policies that are compared: name, parameters and settings of each.

    Raises:
      ValueError: the list is empty, a policy does not place ops, or policies search differently.
    """
    if not settings.weights:
        raise ValueError("weights are not given: expected those of some policies")
    policies = {str(path): go.load(path) for path in settings.weights}
    kinds = {
        (policy.tasks, policy.levels, policy.samples, policy.changes)
        for _, policy in policies.values()
    }
    if len(kinds) > 1:
        raise ValueError(
            f"policies have tasks, levels, samples, changes {kinds}: expected the same"
        )
    if any("placement" not in policy.tasks for _, policy in policies.values()):
        raise ValueError("policies do not place: expected the task placement")
    return [
        (name, params, dataclasses.replace(policy, explore=explore))
        for name, (params, policy) in policies.items()
        for explore in settings.explore or (policy.explore,)
    ]


def main(settings: Settings) -> None:
    """Run the comparison."""
    policies = compared(settings)
    policy = policies[0][2]
    pools = trainer.pools(trainer.VALIDATION, settings.devices, policy, settings.starts)
    to_init, to_search = jax.random.split(jax.random.key(settings.seed))
    first = jax.tree.map(lambda x: x[0], pools[0].inputs)
    policies.insert(0, ("untrained", go.init(to_init, first, settings=policy), policy))
    found: dict[str, np.ndarray] = {}
    search = partial(gains, to_search, iterations=settings.iterations, seeds=settings.seeds)
    for name, params, sizes in track(policies, "searches"):
        label = name if name == "untrained" else f"{name}, {sizes.explore:g} uniform"
        found[label] = np.concatenate([search(params, pool, sizes) for pool in pools], 1)
    evaluations = [1 + step * policy.evaluations_per_iteration for step in settings.iterations]
    report(settings, evaluations, found)


def title_of(devices: Sequence[int]) -> str:
    """Return the title of tables of gains on all validation models."""
    return (
        "% shorter than the start after so many evaluations: geometric means over "
        f"{len(trainer.VALIDATION)} models on {' and '.join(map(str, devices))} devices"
    )


def report(settings: Settings, evaluations: list[int], found: dict[str, np.ndarray]) -> None:
    """Print and save the gains of each policy, `[S, R, T]`; NaN where it does not fit."""
    starts = settings.starts
    searches = [
        (family, devices, start)
        for devices in settings.devices
        for family, _ in trainer.VALIDATION
        for start in starts
    ]
    rows = []
    for policy, ratio in found.items():
        each = [ratio[:, k :: len(starts)] for k in range(len(starts))]
        rows.append([policy, *(_shorter(x[..., t]) for x in each for t in range(x.shape[-1]))])
    title = f"{title_of(settings.devices)}, 95 % intervals of {settings.seeds} searches"
    columns = ["policy", *(f"{start}, {count}" for start in starts for count in evaluations)]
    tables.show(title, columns, rows, settings.folder / "table.md")
    lines = [
        [*search, *(_shorter(ratio[:, k : k + 1, -1]) for ratio in found.values())]
        for k, search in enumerate(searches)
    ]
    title = f"% shorter than the start after {evaluations[-1]} evaluations"
    columns = ["model", "devices", "start", *found]
    tables.show(title, columns, lines, settings.folder / "models.md")
    store.save_settings(settings.folder, settings)
    records = {"searches": searches, "evaluations": evaluations, "log ratio": found}
    store.save_json(settings.folder / "gains.json", records)
    print(f"saved in {settings.folder}")


def _shorter(log_ratio: np.ndarray) -> str:
    """Return the reduction of step times, %, for `[S, R]`, without searches that do not fit."""
    log_ratio = log_ratio[:, np.isfinite(log_ratio).all(0)]
    return statistics.plus_minus(100 * (1 - np.exp(log_ratio.mean(1))), 1)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
