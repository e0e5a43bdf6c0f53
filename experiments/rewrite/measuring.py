"""Measurements of a search on a model: its program, and the time of both."""

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

# XLA for CPUs leaves products and convolutions, with what is near them, to a library, YNNPACK. That
# takes twice as long on some machines, and then whatever keeps it from doing so seems a gain.
PLAIN = {"xla_cpu_experimental_ynn_fusion_type": ""}


def read_model(case: Case) -> tuple[Terms, tuple[int, ...], Program]:
    """Return a model as terms, its results in them, and its equations; weights are constants."""
    terms, program = Terms(), trace_program(case.fn, *case.args)
    constant = [k == 0 for k, arg in enumerate(case.args) for _ in jax.tree.leaves(arg)]
    return terms, terms_of_program(terms, program, constant), program


def measured_cost(program: Program, times: KernelTimes) -> OpCost:
    """Return what an op of a model costs, as measured, with weights as cold as the model's."""
    return measured(times, between=footprint(program))


def measure(case: Case, search: Search, cost: OpCost, *, repeats: int, seed: int) -> dict[str, Any]:
    """Return what a search makes of a model, and what both take.

    Args:
      case: a model, whose first argument are its weights.
      search: how it is rewritten.
      cost: of an op.
      repeats: turns in which whole programs are timed.
      seed: of weights and inputs.
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
    """Return a cell: the cost of what was found as a share of that before."""
    return f"{row['cost'][1] / row['cost'][0]:.4f}"


def rules(counts: Mapping[str, int]) -> str:
    """Return a cell: rules, and how often each was applied."""
    return "; ".join(f"{count} × {rule}" for rule, count in counts.items())


def _plain(case: Case, rewriting: gopt.Result, repeats: int, seed: int) -> dict[str, Any]:
    """Return the times of a model, and of what was found, without YNNPACK."""
    weights, *others = random_arguments(case.args, seed)
    found = rewriting["rewritten, folded"].decision
    before, after = (jax.jit(fn, compiler_options=PLAIN) for fn in (case.fn, found.run))
    calls = {
        "before": partial(before, weights, *others),
        "found": partial(after, found.fold(weights), *others),
    }
    return compare_in_turns(calls, "before", repeats=repeats)


class _Watched:
    """A search, and a cost, that remember what was found, and how long each took."""

    found: Found
    seconds: float  # of the search, without those of `measuring`
    measuring: float  # s, for costs of ops that were not known
    terms: int  # of the program that was given

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
