"""What rewriting makes of the models of the papers, by model cost and measured through XLA.

    python -m experiments.rewrite
    python -m experiments.rewrite --models BERT NasRNN --cost roofline

Each search rewrites each model by the same rules and costs. The program that it finds is compared
with the model as it is, compiled with its weights as arguments: values on random arguments, and
times of whole programs in turns, after what depends on weights alone was computed. What a search
finds is shown whether it is faster or not. Where it says plain, both were compiled without YNNPACK.
Needs the extra `rewriting`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.progress import track

from experiments import common
from experiments.cases import Case, check_names
from experiments.rewrite.measuring import measure, measured_cost
from experiments.rewrite.models import EVERY, MODELS
from experiments.rewrite.searches import SEARCHES
from experiments.rows import Rows, about
from gopt.fusion import KernelTimes
from gopt.measure.timing import check_repeats
from gopt.program.program import trace_program
from gopt.rewriting import OpCost, roofline

COSTS = ("measured", "roofline")


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`; by default those of the papers, `MODELS`.
      searches: of `experiments.rewrite.searches.SEARCHES`; by default all.
      cost: of an op: measured on this CPU, or by a roofline.
      repeats: turns in which whole programs are timed.
      seed: of weights and inputs.
      folder: where figures, tables and times of ops are saved.
    """

    models: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    cost: str = "measured"
    repeats: int = 20
    seed: int = 0
    folder: Path = Path("runs/rewrite")

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)
        check_names("searches", self.searches, SEARCHES)
        check_names("cost", [self.cost], COSTS)
        check_repeats(self.repeats)


def op_costs(settings: Settings) -> Callable[[Case], OpCost]:
    """Returns what makes costs of a model's ops, which remembers those that were measured."""
    if settings.cost == "roofline":
        return lambda _: roofline()
    settings.folder.mkdir(parents=True, exist_ok=True)
    times = KernelTimes(settings.folder / "ops.jsonl")
    return lambda case: measured_cost(trace_program(case.fn, *case.args), times)


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the tables, and saves them."""
    common.show(
        f"Models before and after, {settings.repeats} turns; costs are {settings.cost}",
        (
            *("model", "search", "cost, ms", "then, ms", "measured, ms"),
            *("then, of that (95 %)", "wall, of that", "folded alone, of that"),
            *("plain, ms", "then, of that", "differs", "chosen"),
        ),
        [
            (
                row["model"],
                row["search"],
                *(f"{1e3 * cost:.3f}" for cost in row["cost"]),
                f"{1e3 * min(row['seconds']['before']['process']):.3f}",
                *(common.interval(row[ratio]) for ratio in ("ratio", "wall ratio", "folded ratio")),
                f"{1e3 * min(row['plain seconds']['before']['process']):.3f}",
                common.interval(row["plain ratio"]),
                f"{row['difference']:.0e}",
                row["refused"] or "yes",
            )
            for row in found
        ],
        settings.folder / "models.md",
    )
    common.show(
        "Searches",
        ("model", "search", "terms", "cost, of before", "s", "visited", "ended", "rules"),
        [
            (
                row["model"],
                row["search"],
                row["terms"],
                f"{row['cost'][1] / row['cost'][0]:.4f}",
                f"{row['search s']:.2f}",
                row["visited"],
                row["stopped"],
                "; ".join(f"{count} × {rule}" for rule, count in row["rules"].items()),
            )
            for row in found
        ],
        settings.folder / "searches.md",
    )
    common.show(
        "Costs against whole programs, without what depends on weights alone",
        ("model", "cost, ms", "measured, ms", "wall, ms", "apart, of cost"),
        [
            (
                row["model"],
                f"{1e3 * row['cost'][0]:.3f}",
                f"{1e3 * min(row['seconds']['folded']['process']):.3f}",
                f"{1e3 * (end := min(row['seconds']['folded']['wall'])):.3f}",
                f"{abs(end - row['cost'][0]) / row['cost'][0]:.2f}",
            )
            for row in {row["model"]: row for row in found}.values()
        ],
        settings.folder / "discrepancy.md",
    )


def main(settings: Settings) -> None:
    """Measures all models with all searches, prints the tables and saves them."""
    make_cost, found = op_costs(settings), list[dict[str, Any]]()
    kept = Rows(settings.folder / "rows", about(settings, "models", "searches"))
    common.save_settings(settings.folder, settings)
    runs = [
        (model, search)
        for model in settings.models or MODELS
        for search in settings.searches or SEARCHES
    ]
    for model, search in track(runs, "models and searches"):

        def make(model: str = model, search: str = search) -> dict[str, Any]:
            case = EVERY[model]()
            figures = measure(
                case,
                SEARCHES[search],
                make_cost(case),
                repeats=settings.repeats,
                seed=settings.seed,
            )
            return {"model": model, "search": search, **figures}

        found.append(kept.of(f"{model}, {search}", make))
        common.save_json(settings.folder / "rewrite.json", found)
    show(found, settings)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
