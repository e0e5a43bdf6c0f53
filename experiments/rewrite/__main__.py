"""Compare models of rewriting papers before and after, by model cost and measured through XLA.

    python -m experiments.rewrite
    python -m experiments.rewrite --models BERT NasRNN --cost roofline

Each search rewrites each model by the same rules and costs. The resulting program is compared with
the model as it is, compiled with its weights as arguments. Values are compared on random arguments.
Whole programs are timed in interleaved rounds, with values that depend only on weights precomputed.
Results are shown even if they are slower. "Plain" means that both were compiled without YNNPACK.
Sums of the costs of ops are compared with whole programs: measured with weights as cold as in the
model, measured with weights in the cache, as in TASO, and by a roofline. Needs the extra
`rewriting`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax

import gopt
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.statistics import compare_in_rounds
from experiments.harness.tables import milliseconds, ratio
from experiments.rewrite.measuring import PLAIN, cost_of_before, measured_cost, read_model
from experiments.rewrite.models import EVERY, MODELS
from experiments.rewrite.searches import SEARCHES
from gopt.fusion import KernelTimes
from gopt.measure.equality import random_arguments
from gopt.rewriting import measured, roofline
from gopt.rewriting.cost.pricing import TermCosts

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


def run(model: str, search: str, times: KernelTimes | None, settings: Settings) -> dict[str, Any]:
    """Return the result of a search on a model, and the times of both programs.

    Args:
      model: name of the model.
      search: name of the search.
      times: measured times of ops; None for costs by the roofline.
      settings: settings of the measurement.
    """
    case, repeats, seed = EVERY[model](), settings.repeats, settings.seed
    terms, roots, program = read_model(case)
    costs = {"roofline": roofline()}
    if times is not None:
        costs |= {
            "measured": measured_cost(program, times),
            "cached": measured(times, bytes_between=0),
        }
    found = gopt.rewrite(
        case.fn,
        *case.args,
        constant_argnums=0,
        cost=costs[settings.cost],
        search=SEARCHES[search],
        repeats=repeats,
        seed=seed,
    )
    folded, report = found["rewritten, folded"], found.report
    rewritten = folded.decision
    assert rewritten is not None  # only XLA's own rows have none
    weights, *inputs = random_arguments(case.args, seed)
    before, after = (jax.jit(fn, compiler_options=PLAIN) for fn in (case.fn, rewritten.run))
    calls = {
        "before": partial(before, weights, *inputs),
        "found": partial(after, rewritten.fold(weights), *inputs),
    }
    plain = compare_in_rounds(calls, "before", repeats=repeats)
    names = {"before": "XLA", "folded": "XLA, folded", "found": "rewritten, folded"}
    seconds = {c.name: c.times._asdict() for c in found.candidates if c.times}
    return {
        "model": model,
        "search": search,
        "cost": report.costs,
        "sums": {by: TermCosts(terms, cost).program(roots) for by, cost in costs.items()},
        "weights": sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(case.args[0])),
        "seconds": {of: seconds[name] for of, name in names.items()},
        "plain seconds": {of: row["times"] for of, row in plain.items()},
        "ratio": folded.ratio(),
        "plain ratio": plain["found"]["ratio"],
        "wall ratio": folded.ratio("wall"),
        "folded ratio": found["XLA, folded"].ratio(),
        "difference": report.difference,
        "tolerance": report.tolerance,
        "refused": "" if found.after_folded is folded else found.reason_folded,
        "rules": Counter(report.rules),
    }


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the tables, and save them."""

    def rules(row: dict[str, Any]) -> str:
        return "; ".join(f"{count} × {rule}" for rule, count in row["rules"].items())

    def apart(row: dict[str, Any]) -> str:
        wall, cost = min(row["seconds"]["folded"]["wall"]), row["cost"][0]
        return f"{abs(wall - cost) / cost:.2f}"

    sums = ("roofline",) if settings.cost == "roofline" else ("measured", "cached", "roofline")
    tables.show_rows(
        f"Models before and after, {settings.repeats} rounds; costs are {settings.cost}",
        found,
        (
            ("model", "model"),
            ("search", "search"),
            ("cost, of before", cost_of_before),
            ("measured, ms", milliseconds("seconds", "before", "process")),
            ("then, of that (95 %)", ratio("ratio")),
            ("wall, of that", ratio("wall ratio")),
            ("folded alone, of that", ratio("folded ratio")),
            ("plain, ms", milliseconds("plain seconds", "before", "process")),
            ("then, of that", ratio("plain ratio")),
            ("differs", "{difference:.0e}"),
            ("chosen", lambda row: row["refused"] or "yes"),
            ("rules", rules),
        ),
        settings.folder / "models.md",
    )
    tables.show_rows(
        "Costs against whole programs, without what depends on weights alone",
        list({row["model"]: row for row in found}.values()),
        (
            ("model", "model"),
            ("process, ms", milliseconds("seconds", "folded", "process")),
            ("wall, ms", milliseconds("seconds", "folded", "wall")),
            ("apart, of cost", apart),
            *((f"sum of ops, {by}, ms", milliseconds("sums", by)) for by in sums),
            ("weights, MiB", lambda row: f"{row['weights'] / 2**20:.0f}"),
        ),
        settings.folder / "discrepancy.md",
    )


def main(settings: Settings) -> None:
    """Measure all models with all searches, print the tables and save them."""
    is_measured = settings.cost == "measured"
    times = KernelTimes(settings.folder / "ops.sqlite") if is_measured else None
    rows = {
        f"{model}, {search}": partial(run, model, search, times, settings)
        for model, search in product(settings.models, settings.searches)
    }
    show(store.collect(settings, "rewrite.json", rows, "models", "searches"), settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
