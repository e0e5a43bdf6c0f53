"""Compare programs of one model in interleaved rounds: equality of values, and times."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax

from experiments.harness import tables
from experiments.harness.statistics import compare_in_rounds
from experiments.xrlflow.games import Game
from gopt.measure.equality import is_telling, largest_difference, random_arguments, tolerance
from gopt.measure.timing import median_ratio
from gopt.rewriting import RewrittenProgram


def compare(
    played: Game, programs: Mapping[str, tuple[int, ...]], *, repeats: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Return whether values of each program equal the model's, and its time in each round.

    Values are equal if they agree up to rounding, and can distinguish programs. Times are compared
    with the model as it is, with its weights as arguments. Equal programs are timed once.

    Args:
      played: model.
      programs: results of programs, by name.
      repeats: rounds.
      seed: seed of weights and inputs.
    """
    case = played.case
    draws = [random_arguments(case.args, seed + k) for k in range(2)]
    expected = [jax.tree.leaves(jax.jit(case.fn)(*drawn)) for drawn in draws]
    calls: dict[str, Any] = {"before": partial(jax.jit(case.fn), *draws[0])}
    first: dict[tuple[int, ...], str] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, roots in programs.items():
        if roots in first:
            continue
        first[roots] = name
        written = RewrittenProgram(played.terms, roots, played.program, (0,))
        run, fold = jax.jit(written.run), jax.jit(written.fold)
        values = [jax.tree.leaves(run(fold(weights), *inputs)) for weights, *inputs in draws]
        weights, *inputs = draws[0]
        calls[name] = partial(run, fold(weights), *inputs)
        difference, most = largest_difference(values, expected), tolerance(expected)
        is_equal = is_telling(*expected) and difference <= most
        found[name] = {"difference": difference, "tolerance": most, "equal": is_equal}
    times = compare_in_rounds(calls, "before", repeats=repeats)
    return {
        name: {**found[first[roots]], **times[first[roots]], "same as": first[roots]}
        for name, roots in programs.items()
    }


def against(
    found: Mapping[str, dict[str, Any]], name: str, base: str
) -> tuple[float, float, float]:
    """Return the time of a program as a share of another one's, and its 95 % interval."""
    if found[name]["same as"] == found[base]["same as"]:
        return 1.0, 1.0, 1.0
    return median_ratio(found[name]["times"]["process"], found[base]["times"]["process"])


def of_read(found: Mapping[str, dict[str, Any]], name: str) -> str:
    """Return a program's time as a share of the model as read, or a note of wrong values."""
    if not (found[name]["equal"] and found["as read"]["equal"]):
        return "wrong values"
    return tables.interval(against(found, name, "as read"))
