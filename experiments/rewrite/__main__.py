"""Compare models of rewriting papers before and after, by model cost and measured through XLA.

    python -m experiments.rewrite
    python -m experiments.rewrite --models BERT NasRNN --cost roofline

Each search rewrites each model by the same rules and costs. The resulting program is compared with
the model as it is, compiled with its weights as arguments. Values are compared on random arguments.
Whole programs are timed in interleaved rounds, with values that depend only on weights precomputed.
Results are shown even if they are slower. "Plain" means that both were compiled without YNNPACK.
Needs the extra `rewriting`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import milliseconds, ratio
from experiments.rewrite.measuring import cost_of_before, measure, measured_cost, rules
from experiments.rewrite.models import EVERY, MODELS
from experiments.rewrite.searches import SEARCHES
from gopt.fusion import KernelTimes
from gopt.program.program import trace_program
from gopt.rewriting import OpCost, roofline
from gopt.workloads.cases import Case

COSTS = ("measured", "roofline")


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `experiments.rewrite.models.EVERY`; by default the papers' models,
        `MODELS`.
      searches: searches from `experiments.rewrite.searches.SEARCHES`.
      cost: cost of an op: measured on this CPU, or by a roofline.
      repeats: rounds in which whole programs are timed.
      seed: seed of weights and inputs.
      folder: folder of figures, tables and times of ops.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    searches: tuple[str, ...] = choice(SEARCHES)
    cost: str = choice(COSTS, "measured")
    repeats: int = at_least(1, 20)
    seed: int = 0
    folder: Path = Path("runs/rewrite")


def op_costs(settings: Settings) -> Callable[[Case], OpCost]:
    """Return a function that makes a cost model of a model's ops; measurements are reused."""
    if settings.cost == "roofline":
        return lambda _: roofline()
    settings.folder.mkdir(parents=True, exist_ok=True)
    times = KernelTimes(settings.folder / "ops.sqlite")
    return lambda case: measured_cost(trace_program(case.fn, *case.args), times)


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the tables, and save them."""
    tables.show_rows(
        f"Models before and after, {settings.repeats} turns; costs are {settings.cost}",
        found,
        (
            ("model", "model"),
            ("search", "search"),
            ("cost, ms", milliseconds("cost", 0)),
            ("then, ms", milliseconds("cost", 1)),
            ("measured, ms", milliseconds("seconds", "before", "process")),
            ("then, of that (95 %)", ratio("ratio")),
            ("wall, of that", ratio("wall ratio")),
            ("folded alone, of that", ratio("folded ratio")),
            ("plain, ms", milliseconds("plain seconds", "before", "process")),
            ("then, of that", ratio("plain ratio")),
            ("differs", "{difference:.0e}"),
            ("chosen", lambda row: row["refused"] or "yes"),
        ),
        settings.folder / "models.md",
    )
    tables.show_rows(
        "Searches",
        found,
        (
            *((key, key) for key in ("model", "search", "terms")),
            ("cost, of before", cost_of_before),
            ("s", "{search s:.2f}"),
            ("visited", "visited"),
            ("ended", "stopped"),
            ("rules", lambda row: rules(row["rules"])),
        ),
        settings.folder / "searches.md",
    )

    def apart(row: dict[str, Any]) -> str:
        wall, cost = min(row["seconds"]["folded"]["wall"]), row["cost"][0]
        return f"{abs(wall - cost) / cost:.2f}"

    tables.show_rows(
        "Costs against whole programs, without what depends on weights alone",
        list({row["model"]: row for row in found}.values()),
        (
            ("model", "model"),
            ("cost, ms", milliseconds("cost", 0)),
            ("measured, ms", milliseconds("seconds", "folded", "process")),
            ("wall, ms", milliseconds("seconds", "folded", "wall")),
            ("apart, of cost", apart),
        ),
        settings.folder / "discrepancy.md",
    )


def run(
    model: str, search: str, make_cost: Callable[[Case], OpCost], settings: Settings
) -> dict[str, Any]:
    """Return the result of a search on a model, and the times of both programs."""
    case = EVERY[model]()
    cost = make_cost(case)
    figures = measure(case, SEARCHES[search], cost, repeats=settings.repeats, seed=settings.seed)
    return {"model": model, "search": search, **figures}


def main(settings: Settings) -> None:
    """Measure all models with all searches, print the tables and save them."""
    make_cost = op_costs(settings)
    rows = {
        f"{model}, {search}": partial(run, model, search, make_cost, settings)
        for model, search in product(settings.models, settings.searches)
    }
    show(store.collect(settings, "rewrite.json", rows, "models", "searches"), settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
