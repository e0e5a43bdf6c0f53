"""Measure a search on a model: its program, and the times of both programs."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax

import gopt
from experiments.harness.statistics import compare_in_turns
from gopt.fusion import KernelTimes
from gopt.measure.equality import random_arguments
from gopt.program.program import Program, trace_program
from gopt.rewriting import Found, OpCost, Search, Terms, footprint, measured, terms_of_program
from gopt.workloads.cases import Case

# XLA for CPUs gives products and convolutions, with adjacent ops, to a library, YNNPACK. Its code
# is twice as slow on some machines. There every change that avoids it looks like a gain.
PLAIN = {"xla_cpu_experimental_ynn_fusion_type": ""}


def read_model(case: Case) -> tuple[Terms, tuple[int, ...], Program]:
    """Return a model as terms, its results in them, and its equations; weights are constants."""
    terms, program = Terms(), trace_program(case.fn, *case.args)
    constant = [k == 0 for k, arg in enumerate(case.args) for _ in jax.tree.leaves(arg)]
    return terms, terms_of_program(terms, program, constant), program


def measured_cost(program: Program, times: KernelTimes) -> OpCost:
    """Return the measured cost model of a model's ops, with weights as cold as in the model."""
    return measured(times, between=footprint(program))


def measure(case: Case, search: Search, cost: OpCost, *, repeats: int, seed: int) -> dict[str, Any]:
    """Return the result of a search on a model, and the times of both programs.

    Args:
      case: model, whose first argument holds its weights.
      search: search that rewrites it.
      cost: cost model of ops.
      repeats: rounds in which whole programs are timed.
      seed: seed of weights and inputs.
    """
    watched = _Watched(search, cost)
    rewriting = gopt.rewrite(
        case.fn,
        *case.args,
        constant_argnums=0,
        cost=watched.cost,
        search=watched.search,
        repeats=repeats,
        seed=seed,
    )
    plain = _plain(case, rewriting, repeats, seed)
    names = {"before": "XLA", "folded": "XLA, folded", "found": "rewritten, folded"}
    seconds = {of: rewriting[name].times for of, name in names.items()}
    report, found = rewriting.report, rewriting["rewritten, folded"]
    return {
        "terms": watched.terms,
        "visited": watched.found.visited,
        "stopped": watched.found.stopped,
        "search s": watched.seconds,
        "measuring s": watched.measuring,
        "cost": report.costs,
        "seconds": {of: times._asdict() for of, times in seconds.items()},
        "plain seconds": {of: row["times"] for of, row in plain.items()},
        "ratio": found.ratio(),
        "plain ratio": plain["found"]["ratio"],
        "wall ratio": found.ratio("wall"),
        "folded ratio": rewriting["XLA, folded"].ratio(),
        "difference": report.difference,
        "tolerance": report.tolerance,
        "refused": "" if rewriting.after_folded is found else rewriting.reason_folded,
        "rules": Counter(report.rules),
    }


def cost_of_before(row: Mapping[str, Any]) -> str:
    """Return a cell: the cost after the search as a share of the cost before."""
    return f"{row['cost'][1] / row['cost'][0]:.4f}"


def rules(counts: Mapping[str, int]) -> str:
    """Return a cell: rules, and the number of times that each was applied."""
    return "; ".join(f"{count} × {rule}" for rule, count in counts.items())


def _plain(case: Case, rewriting: Rewriting, repeats: int, seed: int) -> dict[str, Any]:
    """Return the times of a model, and of its rewritten program, without YNNPACK."""
    weights, *others = random_arguments(case.args, seed)
    found = rewriting["rewritten, folded"].decision
    before, after = (jax.jit(fn, compiler_options=PLAIN) for fn in (case.fn, found.run))
    calls = {
        "before": partial(before, weights, *others),
        "found": partial(after, found.fold(weights), *others),
    }
    return compare_in_turns(calls, "before", repeats=repeats)


class _Watched:
    """A search and a cost that record their result and times.

    Attributes:
      found: result of the search.
      seconds: time of the search, without `measuring`, s.
      measuring: time of measuring unknown costs of ops, s.
      terms: terms of the given program.
    """

    found: Found
    seconds: float
    measuring: float
    terms: int

    def __init__(self, search: Search, cost: OpCost):
        self._search, self._cost, self.measuring = search, cost, 0.0

    def cost(self, *op: Any) -> float:
        begin = time.perf_counter()
        seconds = self._cost(*op)
        self.measuring += time.perf_counter() - begin
        return seconds

    def search(self, terms: Terms, roots: Sequence[int], cost: OpCost, rules: Any) -> Found:
        self.terms, known = len(terms.live(roots)), self.measuring
        begin = time.perf_counter()
        self.found = self._search(terms, roots, cost, rules)
        self.seconds = time.perf_counter() - begin - (self.measuring - known)
        return self.found
