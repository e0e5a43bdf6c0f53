"""Policies that guide other parts of the search, or have another network, each trained alike."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments.harness import report, tables
from experiments.harness.report import Row, gains
from experiments.harness.runs import Timed
from experiments.regal import methods, runs
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
SPLITS: tuple[Literal["validation", "test", "transfer"], ...] = ("validation", "test", "transfer")


def settings(sizes: regal.Settings) -> dict[str, regal.Settings]:
    """Return the settings of the policy of every variant."""
    return {name: dataclasses.replace(sizes, **changes) for name, changes in VARIANTS.items()}


def before(name: str) -> str:
    """Return the name of REGAL with the initial parameters of a variant."""
    return f"{name}, untrained"


def searches(
    policies: Mapping[str, runs.Learned], objective: str, evaluations: int
) -> dict[str, Any]:
    """Return the compiled searches by name: BRKGA, and REGAL with each policy, trained or not."""
    found = {"BRKGA": methods.compiled(objective, evaluations, regal.Settings())["BRKGA"]}
    for name, (_, sizes) in policies.items():
        search = methods.compiled(objective, evaluations, sizes)["REGAL"]
        found |= {before(name): search, name: search}
    return found


def starts(policies: Mapping[str, runs.Learned], seed: int, case: runs.Case) -> dict[str, Timed]:
    """Return the starts of these searches on one graph."""
    found = {"BRKGA": Timed(None, 0.0)}
    for name, learned in policies.items():
        found[before(name)] = runs.untrained(case, learned[1], seed)
        found[name] = runs.acted(case, learned)
    return found


def write(
    title: str, names: Sequence[str], splits: Mapping[Any, Sequence[Row]], folder: Path
) -> None:
    """Print and save REGAL's improvement over BRKGA with each of several policies, by split.

    The untrained policies separate the effect of the guide from the effect of training.
    """

    def gain(name: str, split: str) -> np.ndarray:
        return gains(splits[split], name, "BRKGA")

    def cells(name: str) -> list[str]:
        each = [row.found[name].seconds for rows in splits.values() for row in rows]
        return [
            name,
            *(report.percent(gain(name, split), rows) for split, rows in splits.items()),
            *(
                report.percent(gain(name, split) - gain(before(name), split), rows)
                for split, rows in splits.items()
            ),
            f"{np.mean(each):.2f}",
        ]

    for split, rows in splits.items():
        report.save(rows, folder / split / "runs.json")
    tables.show(
        f"{title}: improvement over BRKGA of REGAL, by what its policy leads or is, and how much "
        "of it was trained, %; each trained once, on the training split alone; means and 95 % "
        "intervals over families",
        ("policy", *splits, *(f"trained, {split}" for split in splits), "core s a run"),
        [cells(name) for name in names],
        folder / "variants.md",
    )
