"""Policies that guide other parts of the search, or have another network, each trained alike."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import track

from experiments.harness import graphs as programs
from experiments.harness import store, tables
from experiments.regal import graphs, methods, runs
from experiments.regal.report import percent_interval
from gopt.systems import regal

# Such a policy initially proposes about the draws of standard BRKGA; it still reads the guide.
UNIFORM = {"lean": 0.0, "follow": 0.0, "device_deviation": 1.0, "priority_deviation": 1.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "placement": {"parts": ("placement",)},
    "scheduling": {"parts": ("scheduling",)},
    "placement, scheduling": {"parts": ("placement", "scheduling")},
    "placement, elite bias": {"parts": ("placement", "elite_bias")},
    "scheduling, elite bias": {"parts": ("scheduling", "elite_bias")},
    "placement, scheduling, elite bias": {"parts": ("placement", "scheduling", "elite_bias")},
    "placement, scheduling, transfers": {"parts": ("placement", "scheduling", "transfers")},
    "graph as sequence (GAS)": {"network": "recurrent"},
    "autoregressive head": {"head": "autoregressive"},
    "started from uniform keys": UNIFORM,
}
SPLITS = ("validation", "test", "transfer")


def settings(sizes: regal.Settings) -> dict[str, regal.Settings]:
    """Return the settings of the policy of every variant."""
    return {name: dataclasses.replace(sizes, **changes) for name, changes in VARIANTS.items()}


def compare(
    policies: Mapping[str, tuple[Any, regal.Settings]],
    *,
    objective: str,
    evaluations: int,
    seeds: int,
    seed: int,
    folder: Path,
) -> None:
    """Print and save REGAL's improvement over BRKGA with each of several policies, by split.

    Each policy also searches with its initial parameters, to separate the effect of the guide from
    the effect of training.
    """
    standard = methods.compiled(objective, evaluations, regal.Settings())["BRKGA"]
    gains: dict[str, list[str]] = {name: [] for name in policies}
    learned: dict[str, list[str]] = {name: [] for name in policies}
    seconds: dict[str, list[float]] = {name: [] for name in policies}
    figures: dict[str, Any] = {}
    for split in SPLITS:
        specs = graphs.SPLITS[split]
        costs: dict[str, list[float]] = {}
        before: dict[str, list[float]] = {}
        for index, spec in enumerate(track(specs, f"searching, {split}")):
            case = runs.case(programs.build(spec), objective)
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), seeds)
            found = runs.run(standard, keys, case, objective, runs.Timed((), 0.0))
            costs.setdefault("BRKGA", []).append(found.cost.mean(dtype=float))
            for name, (params, sizes) in policies.items():
                search = methods.compiled(objective, evaluations, sizes)["REGAL"]
                first = regal.init(runs.first_key(seed), case.graphs.value, settings=sizes)
                for kept, weights in ((before, first), (costs, params)):
                    action = runs.acted(case, (weights, sizes))
                    start = runs.Timed((action.value, None), action.seconds)
                    found = runs.run(search, keys, case, objective, start)
                    kept.setdefault(name, []).append(found.cost.mean(dtype=float))
                seconds[name].append(found.seconds or 0.0)
        families = [spec.workload for spec in specs]
        for name in policies:
            first, last = (np.array(x[name]) / costs["BRKGA"] for x in (before, costs))
            gains[name].append(percent_interval(1 - last, families))
            learned[name].append(percent_interval(first - last, families))
        figures[split] = {"families": families, "costs": costs, "untrained": before}
    store.save_json(folder / "variants.json", figures)
    tables.show(
        f"{objective}, {evaluations} evaluations, {seeds} seeds: improvement over BRKGA of REGAL, "
        "by what its policy leads or is, and how much of it was trained, %; each trained once, on "
        "the training split alone; means and 95 % intervals over families",
        ("policy", *SPLITS, *(f"trained, {split}" for split in SPLITS), "core s a run"),
        [
            (name, *gains[name], *learned[name], f"{np.mean(seconds[name]):.2f}")
            for name in policies
        ],
        folder / "variants.md",
    )
