"""Compare rankings and guided searches of networks with other targets and samples."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track
from scipy import stats

from experiments.harness import tables
from experiments.local_advantage.graphs import DEFAULT, Case
from experiments.local_advantage.methods import PAPER, Learned, by_network, flips, walks
from experiments.local_advantage.settings import Settings
from experiments.local_advantage.training import Data, Network
from gopt.cost.fusion.cost import fusion_cost
from gopt.systems import local_advantage

PATHS = 100  # paths of each length
LENGTHS = (1, 2, 4, 8, 16, 32, 64)


def variants(settings: local_advantage.Settings) -> dict[str, local_advantage.Settings]:
    """Return the settings of the network of each variant, by name."""
    change = partial(dataclasses.replace, settings)
    return {
        "guided": settings,
        "absolute": change(is_signed=False),
        "raw": change(target="raw"),
        "prioritised": change(largest=0.9),
        "network of the paper": change(is_signed=False, largest=0.9),
    }


def searches(networks: Mapping[str, Network], evaluations: int) -> dict[str, Learned]:
    """Return the searches that networks guide, and two more: the paper's search, and flips only."""
    guide = partial(by_network, evaluations=evaluations)
    ours, paper = networks["guided"], networks["network of the paper"]
    return {
        **{name: guide(*network) for name, network in networks.items()},
        "flips only": guide(*ours, moves=flips),
        "as in the paper": guide(*paper, settings=PAPER, moves=walks),
    }


def rank_correlations(learned: Mapping[str, Network], data: Data, folder: Path) -> None:
    """Print rank correlations of predicted with true advantages, in one configuration at a time.

    Correlations are of signed advantages and of their sizes. The table also gives the saving of the
    2 % of flips predicted as best, in % of the most that 2 % can save.
    """
    rows = []
    for made, records in track(data, "ranking"):
        can = made.problem.configurable
        truth = records.advantage[:, can].astype(np.float64)
        fuse = records.fuse[:, can]
        for name, (params, settings) in learned.items():
            found = np.asarray(_predict(params, made.graphs, records.fuse, settings))[:, can]
            signed = _correlation(found, truth) if settings.is_signed else np.nan
            sizes = _correlation(np.abs(found), np.abs(truth))
            promise = np.where(fuse, found, -found) if settings.is_signed else found
            saved = np.where(fuse, truth, -truth)
            rows.append(
                (made.name, name, f"{signed:.2f}", f"{sizes:.2f}", f"{_best(promise, saved):.0f}")
            )
    tables.show(
        "Predicted and true advantages",
        ("graph", "network", "rank correlation", "of sizes", "saved by the best 2 %, %"),
        rows,
        folder / "ranks.md",
    )


def _predict(
    params: Any, graphs: Any, fuse: np.ndarray, settings: local_advantage.Settings
) -> jax.Array:
    return jax.jit(partial(local_advantage.predict, settings=settings))(
        params, graphs, fuse.astype(np.int32)
    )


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean([stats.spearmanr(*rows).statistic for rows in zip(a, b, strict=True)]))


def _best(promise: np.ndarray, saved: np.ndarray) -> float:
    """Return the saving of the most promising 2 %, in % of the most that 2 % can save.

    Harmful flips count as negative savings.
    """
    count = max(1, promise.shape[1] // 50)
    chosen = np.argsort(-promise, 1)[:, :count]
    made = np.take_along_axis(saved, chosen, 1).sum()
    most = np.maximum(np.sort(saved, 1)[:, -count:], 0).sum()
    return float(100 * made / most) if most else float("nan")


def path_sums(learned: Network, data: Data, settings: Settings) -> None:
    """Print the accuracy of sums of predictions as estimates of changes along paths of flips.

    Paths start at the default and flip random decisions. Predictions are made once at the start, or
    again before each flip. They are compared with sums of true advantages at the start.
    """
    rows = []
    for made, _ in track(data, "paths"):
        found = _paths(*learned, made, settings.seed)
        for kind, correlations in found.items():
            rows.append((made.name, kind, *(f"{c:.2f}" for c in correlations)))
    tables.show(
        f"Rank correlation of sums along paths of flips with what the paths change, {PATHS} paths",
        ("graph", "sums of", *(f"{length} flips" for length in LENGTHS)),
        rows,
        settings.folder / "paths.md",
    )


def _paths(
    params: Any, settings: local_advantage.Settings, made: Case, seed: int
) -> dict[str, list[float]]:
    problem, graphs = made.problem, made.graphs
    default = made.found[DEFAULT]
    rng = np.random.default_rng(seed)
    choices = np.flatnonzero(problem.configurable)
    paths = np.stack([rng.choice(choices, max(LENGTHS), replace=False) for _ in range(PATHS)])
    measure = jax.jit(partial(_along, settings=settings))
    found = jax.device_get(measure(params, problem, graphs, default, paths))
    once, true, anew, real = (np.asarray(x, np.float64) for x in found)
    sums = {
        "predictions at the start": once[paths].cumsum(1),
        "predictions anew": anew.cumsum(1),
        "true ones at the start": true[paths].cumsum(1),
    }
    ends = np.array(LENGTHS) - 1
    return {
        kind: [float(stats.spearmanr(total[:, k], real[:, k]).statistic) for k in ends]
        for kind, total in sums.items()
    }


def _along(
    params: Any, problem: Any, graphs: Any, default: Any, paths: Any, *, settings: Any
) -> tuple[jax.Array, ...]:
    """Return changes of flips at the default, predicted and true, and changes along each path.

    Changes are in ticks: `[N]`, `[N]`, and `[paths, flips]` predicted before each flip, and the
    true cumulative ones.
    """
    problem, graphs = (jax.tree.map(jnp.asarray, x) for x in (problem, graphs))
    start = jnp.asarray(default)
    nodes = local_advantage.encode(params, graphs, settings=settings)
    true = local_advantage.advantages(problem, start)
    sizes = jnp.abs(jnp.where(true == 0, jnp.nan, true))
    scale = jnp.nanmedian(sizes)

    def changes(fuse: jax.Array) -> jax.Array:
        found = local_advantage.predicted(
            params, nodes, graphs, fuse.astype(jnp.int32), settings=settings
        )[:, 0]
        sizes = jnp.abs(found)
        sizes = jnp.expm1(sizes) if settings.target == "log" else sizes
        ticks = jnp.sign(found) * sizes * scale
        return jnp.where(fuse, -ticks, ticks)

    def along(path: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(fuse: jax.Array, op: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            expected = changes(fuse)[op]
            fuse = fuse.at[op].set(~fuse[op])
            return fuse, (expected, fusion_cost(problem, fuse))

        _, (anew, costs) = jax.lax.scan(step, start, path)
        return anew, costs - fusion_cost(problem, start)

    anew, real = jax.lax.map(along, jnp.asarray(paths))
    return changes(start), jnp.where(start, -true, true), anew, real
