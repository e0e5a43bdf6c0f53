"""Tables and curves of `experiments.xrlflow`: results on a model, over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import tables
from experiments.harness.plots import save_figure
from gopt.plots.style import COLOURS, legend, new_figure

Rows = Sequence[Mapping[str, Any]]  # results of a model and a seed each


def by_model(rows: Rows) -> dict[str, Rows]:
    """Return rows of all models and seeds by their models."""
    names = dict.fromkeys(row["model"] for row in rows)
    return {name: [row for row in rows if row["model"] == name] for name in names}


def over_seeds(rows: Rows, name: str, key: str) -> str:
    """Return the median of a ratio over seeds, and its range; with one seed, its interval.

    Args:
      rows: rows of one model.
      name: name of a program.
      key: "ratio", or "of TASO".
    """
    found = [row["found"][name] for row in rows]
    compared = [*found, *(row["found"]["TASO"] for row in rows if key == "of TASO")]
    if not all(one["equal"] for one in compared):
        return "wrong values"
    ratios = [one[key] for one in found]
    if len(ratios) == 1:
        return tables.interval(ratios[0])
    middle = [ratio[0] for ratio in ratios]
    return tables.interval((float(np.median(middle)), min(middle), max(middle)))


def show(
    rows: Rows, baselines: Sequence[str], players: Sequence[str], repeats: int, folder: Path
) -> None:
    """Print the tables, and save them.

    Programs of searches are equal for all seeds, and only timed again. Players share the times of
    measured programs, so that later players need less time.

    Args:
      rows: rows of all models and seeds.
      baselines: names of the searches.
      players: names of the players.
      repeats: rounds in which programs were timed.
      folder: folder of the tables.
    """
    models = by_model(rows)
    seeds = max(map(len, models.values()), default=0)
    spread = f"95 % of {repeats} turns" if seeds < 2 else f"median, least to most of {seeds} seeds"
    names = ("as read", *players, *baselines)
    of_taso = [name for name in names if name != "TASO"] if "TASO" in baselines else []
    for whose, key, columns, file in (
        ("that before", "ratio", names, "models.md"),
        ("that of TASO's program", "of TASO", of_taso, "taso.md"),
    ):
        if columns:
            tables.show(
                f"Process time as a share of {whose} ({spread})",
                ("model", *columns),
                [
                    (model, *(over_seeds(own, name, key) for name in columns))
                    for model, own in models.items()
                ],
                folder / file,
            )
    tables.show(
        "What each has found: the sum of its ops as a share of that as read, and times of before",
        (
            *("model", "seed", "by", "sum of ops", "process", "wall", "differs"),
            *("s", "of which learning", "rewrites", "rounds", "measured"),
        ),
        [
            (
                *(row["model"], row["seed"], name, f"{one['cost']:.4f}"),
                *(f"{one[ratio][0]:.3f}" for ratio in ("ratio", "wall ratio")),
                f"{one['difference']:.0e}",
                f"{one['s']:.1f}",
                f"{sum(past.get('learning s', 0.0) for past in one['history']):.1f}",
                len(one["rules"]),
                len(one["history"]) or "",
                len(one["measured"]) or "",
            )
            for row in rows
            for name, one in row["found"].items()
        ],
        folder / "searches.md",
    )


def draw(rows: Rows, players: Sequence[str], path: Path) -> None:
    """Draw the time of the fastest program by number of measurements: the median, and all seeds.

    Args:
      rows: rows of one model, by seed.
      players: players whose programs are drawn.
      path: path of the picture.
    """
    figure, (axes,) = new_figure([2.4])
    for k, name in enumerate(players):
        measured = [row["found"][name]["measured"] for row in rows]
        most = max(map(len, measured))
        count = np.arange(1, most + 1)
        best = [np.minimum.accumulate([*one, *one[-1:] * (most - len(one))]) for one in measured]
        width = 2.6 - 0.4 * k  # lines stay visible where they overlap
        middle, low, high = np.median(best, 0), np.min(best, 0), np.max(best, 0)
        colour = COLOURS[k]
        axes.step(count, middle, where="post", label=name, color=colour, linewidth=width)
        axes.fill_between(count, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(f"programs measured, {rows[0]['model']}")
    axes.set_ylabel("time of the fastest, as read = 1")
    legend(axes, columns=2)
    save_figure(path, figure)
