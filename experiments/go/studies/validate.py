"""Compare searches with and without training, on models that no policy was trained on.

    python -m experiments.go.studies.validate
    python -m experiments.go.studies.validate --weights runs/go/schedule/policy/policy.npz

The models are training steps of families that are neither in training nor in the table. Searches
start from one device and from a cut by METIS. They use an untrained policy, whose moves are
uniform, and the given policies. Choose settings by this table, not by the rows of the paper.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.go import training as trainer
from experiments.go.case import OBJECTIVE
from experiments.harness import command_line, statistics, store, tables
from experiments.harness.command_line import UsageError, at_least
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.search.parallel import shard_candidates
from gopt.systems import go

Run = Callable[..., tuple[Any, Any, jax.Array]]  # signature of `go.rollout`


@dataclass(frozen=True)
class SearchSettings(command_line.Settings):
    """Settings of searches of the validation models.

    Attributes:
      devices: numbers of devices.
      iterations: iterations of a search after which gains are shown.
      seeds: searches of each graph and start, with the same random keys for each policy.
      seed: seed of everything random.
    """

    devices: tuple[int, ...] = at_least(1, (2, 4))
    iterations: tuple[int, ...] = at_least(1, (5, 20, 50))
    seeds: int = at_least(1, 4)
    seed: int = 0


@dataclass(frozen=True)
class Settings(SearchSettings):
    """Settings of the comparison.

    Attributes:
      weights: policies that place ops, and search alike except for `explore`; by default the one
        that ships.
      explore: shares of moves that are drawn uniformly; by default each policy's own.
      folder: folder of the table and all gains.
    """

    weights: tuple[Path, ...] = ()
    explore: tuple[float, ...] = ()
    folder: Path = Path("runs/go/validation")


def gains(
    key: jax.Array,
    params: Any,
    pools: Sequence[go.Searches],
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
      pools: searches, `R` in all.
      policy: settings of the policy.
      iterations: iterations after which gains are returned, `T` numbers.
      seeds: runs of each search, `S`.
      simulate: function that makes a simulator of decisions.
      run: function that runs a search, with the signature of `go.rollout`.
    """
    every, how = [], (max(iterations), policy, simulate, run)
    for pool in pools:
        count = len(pool.start.cost)
        again = jax.tree.map(lambda x: jnp.concatenate([x] * seeds), pool)
        keys = jax.random.split(key, seeds * count)
        found = np.asarray(searched(params, keys, again, *how)).reshape(seeds, count, -1)
        fits = np.asarray(pool.start.cost)[:, None] < MAX_TICKS
        every.append(np.where(fits, found[..., np.array(iterations) - 1], np.nan))
    return np.concatenate(every, 1)


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def searched(
    params: Any,
    keys: jax.Array,
    pool: go.Searches,
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
      UsageError: a policy does not place ops, or policies search differently.
    """
    policies = {str(path or "shipped"): go.load(path) for path in settings.weights or (None,)}
    kinds = {
        (policy.tasks, policy.levels, policy.samples, policy.changes)
        for _, policy in policies.values()
    }
    if len(kinds) > 1 or any("placement" not in tasks for tasks, *_ in kinds):
        raise UsageError(
            f"policies have tasks, levels, samples, changes {kinds}: expected the same, and "
            "placement among the tasks"
        )
    return [
        (name, params, dataclasses.replace(policy, explore=explore))
        for name, (params, policy) in policies.items()
        for explore in settings.explore or (policy.explore,)
    ]


def main(settings: Settings) -> None:
    """Run the comparison."""
    policies = compared(settings)
    policy = policies[0][2]
    pools = trainer.pools(trainer.VALIDATION, settings.devices, policy)
    to_init, to_search = jax.random.split(jax.random.key(settings.seed))
    policies.insert(0, ("untrained", trainer.initial(to_init, pools, policy), policy))
    found: dict[str, np.ndarray] = {}
    search = partial(gains, to_search, iterations=settings.iterations, seeds=settings.seeds)
    for name, params, sizes in track(policies, "searches"):
        label = name if name == "untrained" else f"{name}, {sizes.explore:g} uniform"
        found[label] = search(params, pools, sizes)
    report(settings, policy.evaluations_per_iteration, found)


def shorter(ratio: np.ndarray) -> str:
    """Return the reduction of step times, %, for `[S, R]`, without searches that do not fit."""
    return statistics.plus_minus(100 * statistics.time_saved(np.exp(ratio.T)), 1)


def report(
    settings: Any,
    each: int,
    found: dict[str, np.ndarray],
    cell: Callable[[np.ndarray], str] = shorter,
    intervals: str = "95 % intervals over searches",
) -> None:
    """Print and save the gains of policies, NaN where a start does not fit.

    Args:
      settings: `SearchSettings` with a folder.
      each: evaluations of an iteration.
      found: log ratios by policy, `[..., S, R, T]`.
      cell: function that makes a table cell of log ratios from one start, `[..., S, R]`.
      intervals: description of the interval in a cell.
    """
    evaluations, starts = [1 + steps * each for steps in settings.iterations], trainer.STARTS
    columns = [(k, t) for k in range(len(starts)) for t in range(len(evaluations))]
    rows = [
        [name, *(cell(ratio[..., k :: len(starts), t]) for k, t in columns)]
        for name, ratio in found.items()
    ]
    title = (
        "% shorter than the start after so many evaluations: geometric means over "
        f"{len(trainer.VALIDATION)} models on {' and '.join(map(str, settings.devices))} devices "
        f"and {settings.seeds} searches, {intervals}"
    )
    heads = ["policy", *(f"{start}, {count}" for start in starts for count in evaluations)]
    tables.show(title, heads, rows, settings.folder / "table.md")
    store.save_settings(settings.folder, settings)
    families = [family for family, _ in trainer.VALIDATION]
    searches = list(product(settings.devices, families, starts))
    records = {"searches": searches, "evaluations": evaluations, "log ratio": found}
    store.save_json(settings.folder / "gains.json", records)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
