"""From a JAX function to an equal one that is measured to be faster."""

import contextlib
import dataclasses
import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gopt.host.extras import check_installed
from gopt.host.progress import Progress, Show
from gopt.measure.comparison import choose
from gopt.measure.equality import is_telling, largest_difference, tolerance
from gopt.measure.timing import time_interleaved
from gopt.program.arguments import check_whole_numbers, keywords_are_options, positions
from gopt.program.checks import check_alone, check_arrays, check_one_device
from gopt.program.effects import DropEffects, drop
from gopt.program.program import Program, trace_program
from gopt.result import Candidate, Result
from gopt.rewriting.cost.costs import OpCost, roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.equal_values import compare
from gopt.rewriting.ir.from_program import count_unknown_primitives, terms_of_program
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram
from gopt.rewriting.plan import (
    FOLDED,
    OWN,
    OWN_FOLDED,
    WHOLE,
    compiled_candidate,
    executable_of,
    known_leaves,
)
from gopt.rewriting.report import RewriteReport
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.pet import partial_equivalence
from gopt.rewriting.search.result import RewriteSearch
from gopt.rewriting.search.taso import backtracking
from gopt.search_argument import Weights, check_search, load_policy

SEARCHES = ("taso", "pet", "tensat", "xrlflow")
LEARNED = ("xrlflow",)


@keywords_are_options
def rewrite(
    fn: Callable[..., Any],
    *args: Any,
    search: str | RewriteSearch = "taso",
    weights: Weights | None = None,
    seed: int = 0,
    repeats: int = 20,
    constant_argnums: int | Sequence[int] = (),
    cost: OpCost | None = None,
    rules: Sequence[Rule] | None = None,
    drop_effects: DropEffects = None,
    seconds: float | None = None,
    progress: Show = True,
) -> Result[RewrittenProgram | None, RewriteReport]:
    """Return an equal function that costs less, measured against the function on this machine.

    Programs are rewritten by rules, and the one that costs least is compared with the function: its
    values on the given arguments and on drawn ones, and its time through XLA on the given ones. It
    is chosen only if it has the same values and is significantly faster, see
    `gopt.measure.comparison`. To differentiate, rewrite the gradient: derivatives of the rewritten
    function may be others.

    `apply()` returns a function of the same arguments. Values that depend on constant arguments
    alone, such as joined weights, can be computed once, by `apply(constants=...)`.

    Args:
      fn: any function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees. Random arrays
        replace shapes when programs are measured.
      search: name of a search, or a callable as `gopt.search_argument` describes.
        "taso": backtracking, as in TASO.
        "pet": partially equivalent forms of ops, as in PET, then "taso".
        "tensat": equality saturation, as in Tensat, for at most 120 s; needs the extra `rewriting`.
        "xrlflow": a trained agent; needs the extra `xrlflow`.
      weights: policy for "xrlflow": a file that `gopt.systems.xrlflow.save` wrote, or the pair that
        its `load` returns. By default the policy that ships.
      seed: random seed of the search and of random arguments.
      repeats: rounds in which programs are timed. Fewer than 12 are too few for a test; then the
        function itself is chosen.
      constant_argnums: positions of arguments whose values are known before the function runs.
      cost: cost of an op, s; by default a roofline of a CPU, see `gopt.rewriting.cost.costs`.
      rules: equalities to rewrite by; by default `gopt.rewriting.RULES`.
      drop_effects: "debug" drops `jax.debug.print` and `jax.debug.callback`.
      seconds: time from the call on after which the search ends with the best program so far, s; by
        default only Ctrl-C ends it early. What it found is still compared, compiled and timed. In
        these steps, another Ctrl-C ends the comparison, and then the function itself is chosen, or
        the timing. A second Ctrl-C during the search ends the program. A search that is a callable
        is not cut.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Returns:
      A `gopt.Result`. Decisions of candidates are `gopt.rewriting.RewrittenProgram`s, or `None` for
      the function itself.

    Raises:
      ValueError: an argument is out of range; the function cannot be traced (see `gopt.trace`) or
        is spread over devices; the call is traced; an array was deleted; an op of it has no finite
        cost; a rule changes a shape or dtype; or `weights` holds something else.
      FileNotFoundError: the file `weights` does not exist.

    Example:
      import gopt, jax.numpy as jnp

      model = lambda weights, x: x @ weights[0] @ weights[1]
      weights, x = [jnp.ones((64, 64))] * 2, jnp.ones((8, 64))
      result = gopt.rewrite(model, weights, x, constant_argnums=0, repeats=12)
      print(result)  # the rules that were applied; times and their ratios to the function's
      y = result.apply(constants={0: weights})(x)
    """
    check_whole_numbers(1, repeats=repeats)
    check_whole_numbers(0, seed=seed)
    check_search(search, weights, SEARCHES, LEARNED)
    work = Progress("gopt.rewrite", progress, seconds=seconds)
    find = _search_of(search, weights, seed, work)
    constant = positions("constant_argnums", constant_argnums, len(args))
    fn = drop(fn, drop_effects)
    program = trace_program(fn, *args)
    check_alone(args, program)
    check_one_device(args, program)
    check_arrays(args, program)
    terms, cost = Terms(), cost or roofline()
    roots = terms_of_program(terms, program, known_leaves(program, constant))
    num_terms = len(terms)
    cost_before = TermCosts(terms, cost).program(roots)
    if not math.isfinite(cost_before):
        raise ValueError(f"the function costs {cost_before} s: an op of it has no finite cost")
    with work, work.interrupts_noted():
        with contextlib.nullcontext() if isinstance(search, str) else work.interrupts_raised():
            found = find(terms, roots, cost, RULES if rules is None else rules)
        work.search_ended()
        has_constants = bool(constant or program.values)
        own = RewrittenProgram(terms, roots, program, set(constant))
        rewritten = RewrittenProgram(terms, found.roots, program, set(constant))
        functions: dict[str, Callable[..., Any]] = {OWN: fn, WHOLE: rewritten, OWN_FOLDED: own}
        if not has_constants:
            functions.pop(OWN_FOLDED)
        work.phase("values compared")
        given, values, note = compare(functions, args, program, seed, work)
        expected = values[OWN]
        changed = [
            k for k, (old, new) in enumerate(zip(roots, found.roots, strict=True)) if old != new
        ]
        made = [k for k, root in enumerate(found.roots) if not _is_given(terms, root)]

        last = (expected * 2)[-2:]  # of the drawn arguments, if there are values on them

        def tells(results: Sequence[int]) -> bool:
            return is_telling(*([values[k] for k in results] for values in last))

        report = RewriteReport(
            rules=found.rewrites,
            difference=largest_difference(values[WHOLE], expected),
            folded_difference=largest_difference(values.get(OWN_FOLDED, expected), expected),
            tolerance=tolerance(expected),
            is_telling=tells(changed) and (not made or any(tells([k]) for k in made)),
            costs=(cost_before, found.cost),
            stop_reason=found.stop_reason,
            values_note=note,
            is_compared=not (note and work.is_interrupted),
            unknown=count_unknown_primitives(terms, roots),
            constant_argnums=constant,
            terms=terms,
            num_terms=num_terms,
            roots=found.roots,
        )
        programs = {OWN: own, WHOLE: rewritten}
        if has_constants:
            programs |= {OWN_FOLDED: own, FOLDED: rewritten}
        candidates = _measured(fn, programs, report, program, given, repeats, work)
        report = dataclasses.replace(report, cut_note=work.cut_note)
        return _result(program, candidates, report)


def _search_of(
    search: str | RewriteSearch, weights: Weights | None, seed: int, work: Progress
) -> RewriteSearch:
    """Return a search as a callable, with its policy loaded; extras are imported here."""
    if not isinstance(search, str):
        return search
    if search == "tensat":
        from gopt.rewriting.search.saturation import saturation
        from gopt.rewriting.search.saturation.egraph import bindings

        check_installed(bindings)
        return partial(saturation, progress=work)
    if search == "xrlflow":
        # By name, because the learned systems import this package.
        xrlflow = importlib.import_module("gopt.systems.xrlflow")
        return xrlflow.agent(*load_policy(weights, xrlflow.load), seed=seed, progress=work)
    return partial({"taso": backtracking, "pet": partial_equivalence}[search], progress=work)


def _measured(
    fn: Callable[..., Any],
    programs: dict[str, RewrittenProgram],
    report: RewriteReport,
    program: Program,
    args: tuple[Any, ...],
    repeats: int,
    work: Progress,
) -> tuple[Candidate[RewrittenProgram | None], ...]:
    """Return the function and its equal programs, each compiled and timed.

    Args:
      fn: the function.
      programs: by name.
      report: details of the rewriting.
      program: the equations of the function.
      args: arrays.
      repeats: rounds.
      work: shows progress.
    """
    constants = [args[k] for k in report.constant_argnums]
    others = [arg for k, arg in enumerate(args) if k not in report.constant_argnums]
    costs = dict.fromkeys((OWN, OWN_FOLDED), report.costs[0])
    costs |= dict.fromkeys((WHOLE, FOLDED), report.costs[1])
    if len(programs) > 2:  # the model leaves out what depends on constants alone
        costs.pop(OWN), costs.pop(WHOLE)
    work.phase("programs compiled", len(programs))
    found: list[Candidate[RewrittenProgram | None]] = []
    calls = {}
    for name, written in programs.items():
        run = executable_of(name, fn, written, program)
        folded = run.fold(*constants) if run.fold else ()
        values = (folded, *others) if run.fold else args
        calls[name] = run.function
        if run.fold:
            calls[name] = partial(_with_folded, run.function, folded, report.constant_argnums)
        decision = None if name == OWN else written
        work.advance(len(found))
        found.append(
            compiled_candidate(name, decision, costs.get(name), run, values, folded=folded)
        )
    times = time_interleaved(
        calls, lambda: program.with_copies(args), repeats=repeats, progress=work
    )
    return tuple(c._replace(times=times[c.name], base_times=times[OWN]) for c in found)


def _with_folded(function: Any, folded: Any, constant: Sequence[int], *args: Any) -> Any:
    """Call a function of folded constants with all arguments."""
    return function(folded, *(arg for k, arg in enumerate(args) if k not in constant))


def _result(
    program: Program,
    candidates: tuple[Candidate[RewrittenProgram | None], ...],
    report: RewriteReport,
) -> Result[RewrittenProgram | None, RewriteReport]:
    """Return what is chosen, with all arguments and with folded constants."""
    times = {c.name: c.times for c in candidates if c.times is not None}
    index = {c.name: k for k, c in enumerate(candidates)}

    def chosen(*names: str) -> tuple[int, str]:
        refused = {name: why for name, why in report.refused.items() if name in names}
        choice = choose({name: times[name] for name in names}, refused)
        return index[choice.name], choice.reason

    whole = chosen(OWN, WHOLE)
    if FOLDED not in index:
        return Result(program, candidates, *whole, report)
    return Result(program, candidates, *whole, report, *chosen(OWN, OWN_FOLDED, FOLDED))


def _is_given(terms: Terms, number: int) -> bool:
    """Return whether nothing is done to what is not known before."""
    return terms.constant[number] or terms[number].operator == "argument"
