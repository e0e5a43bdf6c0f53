"""From a JAX function to an equal one that is measured to be faster."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from gopt.measure.equality import is_telling, largest_difference, random_arguments, tolerance
from gopt.measure.timing import FEWEST_TURNS, Times, check_repeats, median_ratio, turns
from gopt.plots.units import format_seconds
from gopt.program.program import Program, check_one_device, trace_program
from gopt.rewriting.cost.costs import OpCost, roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.from_program import count_unknown_primitives, terms_of_program
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram, TracedProgram
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.result import Search
from gopt.rewriting.search.taso import backtracking


class Measured(NamedTuple):
    """A program as it was measured."""

    written: TracedProgram
    cost: float  # s, by the model, of what does not depend on constants alone
    times: Times  # of a call in each turn


@dataclass(frozen=True, eq=False, repr=False)
class Rewriting:
    """A function, and the cheapest equal one that was found. Print it for a table.

    Attributes:
      program: the function as equations.
      before: the function as it is, with all of its arguments; its cost is that of its terms, as
        `gopt.rewriting.ir.from_program.terms_of_program` makes them.
      folded: its terms, where what depends on constants alone is computed before.
      found: the cheapest program, folded as well.
      rules: names of those that led there, as the search tells them.
      difference: of its values from those of the function, as a share of the largest of an array.
      tolerance: what that may be by rounding, see `gopt.measure.equality.tolerance`.
      tells: whether random values can tell functions apart: those that the search has changed, and
        one at least of what depends on arguments that are not constant.
      stopped: why the search ended.
      unknown: what rules know nothing of, and how often the function has it.
    """

    program: Program
    before: Measured
    folded: Measured
    found: Measured
    rules: tuple[str, ...]
    difference: float
    tolerance: float
    tells: bool
    stopped: str
    unknown: Counter[str]

    @property
    def after(self) -> Measured:
        """What was found, if it has the same values and is surely faster; else what was there.

        That is with 95 % confidence, by the time that the process spends on all cores. What surely
        takes longer on the wall is not chosen either.
        """
        return self.before if self.refused else self.found

    @property
    def refused(self) -> str:
        """Why what was found is not chosen; empty if it is."""
        if not self.tells:
            return "its values tell nothing: one is not finite, or all of an array are the same"
        if not self.difference <= self.tolerance:
            return f"its values differ by {self.difference:.0e}"
        if len(self.found.times.process) < FEWEST_TURNS:
            return f"turns are too few to tell what is faster: {FEWEST_TURNS} at least"
        if not self.ratio()[2] < 1:
            return "it is not surely faster"
        if self.ratio("wall")[1] > 1:
            return "it surely takes longer on the wall"
        return ""

    def ratio(
        self, clock: Literal["process", "wall"] = "process", of: Measured | None = None
    ) -> tuple[float, float, float]:
        """Returns the time of what was found as a share of that before, and its 95 % interval.

        Args:
          clock: by which, see `gopt.measure.timing.Times`.
          of: another one of the three programs.
        """
        times = (of or self.found).times
        return median_ratio(getattr(times, clock), getattr(self.before.times, clock))

    def apply(self) -> TracedProgram:
        """Returns what was chosen: same arguments, same values.

        What was found was measured as `fold` and `run` do it, see
        `gopt.rewriting.ir.to_function.TracedProgram`; a call computes what depends on constants
        alone each time. If it was not chosen, this is the function, equation by equation, and
        nothing is computed before.
        """
        return self.after.written

    def __str__(self) -> str:
        lines = [
            f"{len(self.program.equations)} equations; process time of the best of "
            f"{len(self.before.times.process)} turns; {self.stopped}",
            f"{'':8}{'by the model':>14}{'measured':>12}{'of before':>11}  {'95 %':11}",
        ]
        for name in ("before", "folded", "found"):
            each: Measured = getattr(self, name)
            measured, (middle, low, high) = float(each.times.process.min()), self.ratio(of=each)
            lines.append(
                f"{name:8}{format_seconds(each.cost):>14}{format_seconds(measured):>12}"
                f"{middle:>11.3f}  {f'{low:.3f}-{high:.3f}':11}"
            )
        lines += [f"{count:4} × {rule}" for rule, count in Counter(self.rules).items()]
        if self.unknown:
            names = (f"{count} × {name}" for name, count in self.unknown.most_common())
            lines.append(f"no rule knows: {', '.join(names)}")
        chosen = f"before ({self.refused})" if self.refused else "found"
        return "\n".join([*lines, f"chosen: {chosen}"])


def rewrite(
    fn: Callable[..., Any],
    *args: Any,
    constant_argnums: int | Sequence[int] = (),
    cost: OpCost | None = None,
    rules: Sequence[Rule] = RULES,
    search: Search = backtracking,
    repeats: int = 20,
    seed: int = 0,
) -> Rewriting:
    """Returns an equal function that costs less, and what both take on this machine.

    Programs are rewritten by rules, and the one that costs least is compared with the function: its
    values on random arguments, and on those that are given, and its time through XLA on these. It
    is chosen only if it has the same values, and is surely faster. To differentiate, rewrite the
    gradient: derivatives of what comes back may be others.

    What depends on constant arguments alone, as weights that are joined, can be computed once:

        faster = gopt.rewrite(model, weights, x, constant_argnums=0).apply()
        folded = faster.fold(weights)
        y = jax.jit(faster.run)(folded, x)

    Args:
      fn: any function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees; in the place of the
        last, numbers are drawn.
      constant_argnums: positions in `args` of what is known before the function runs.
      cost: of an op, in s; by default a roofline of a CPU, see `gopt.rewriting.cost.costs`.
      rules: what may be put in the place of what.
      search: how programs are rewritten: as TASO does it, as PET does,
        `gopt.rewriting.partial_equivalence`, or as Tensat does, `saturation` of the module
        `gopt.rewriting.search.saturation`. Bind options of these with `functools.partial`.
      repeats: turns in which both are timed; fewer than 6 are too few to tell what is faster.
      seed: of the numbers that are drawn.

    Raises:
      ValueError: an argument is out of range, `repeats` is less than 1, the function cannot be
        traced (see `gopt.trace`) or is spread over devices, an op of it has no finite cost, or a
        rule puts something of another shape or dtype somewhere.
    """
    check_repeats(repeats)
    if isinstance(constant_argnums, int | np.integer):
        constant_argnums = (int(constant_argnums),)
    constant = set(constant_argnums)
    for position in sorted(constant):
        if not 0 <= position < len(args):
            raise ValueError(f"constant_argnums has {position}, expected 0..{len(args) - 1}")
    program = trace_program(fn, *args)
    check_one_device(args, program)
    terms, cost = Terms(), cost or roofline()
    known = [k in constant for k, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    roots = terms_of_program(terms, program, known)
    cost_before = TermCosts(terms, cost).program(roots)
    if not math.isfinite(cost_before):
        raise ValueError(f"the function costs {cost_before} s: an op of it has no finite cost")
    found = search(terms, roots, cost, rules)

    written = {
        "before": TracedProgram(program, constant),
        "folded": RewrittenProgram(terms, roots, program, constant),
        "found": RewrittenProgram(terms, found.roots, program, constant),
    }
    draws = [_drawn(args, program, seed + k) for k in range(2)]
    given = _given(args, draws[0])
    draws.append(given)  # which may be larger, or smaller, than random numbers are
    expected = [jax.tree.leaves(jax.jit(fn)(*drawn)) for drawn in draws]
    ours = [jax.tree.leaves(jax.jit(written["found"])(*drawn)) for drawn in draws]
    changed = [k for k, (old, new) in enumerate(zip(roots, found.roots, strict=True)) if old != new]
    made = [k for k, root in enumerate(found.roots) if not _is_given(terms, root)]
    times = _times(fn, written, given, constant, repeats)
    costs = {"before": cost_before, "folded": cost_before, "found": found.cost}
    return Rewriting(
        program=program,
        **{name: Measured(written[name], costs[name], times[name]) for name in written},
        rules=found.rewrites,
        difference=largest_difference(ours, expected),
        tolerance=tolerance(expected),
        tells=is_telling(*([values[k] for k in changed] for values in expected[:2]))
        and (not made or any(is_telling(*(values[k] for values in expected[:2])) for k in made)),
        stopped=found.stopped,
        unknown=count_unknown_primitives(terms, roots),
    )


def _times(
    fn: Callable[..., Any],
    written: dict[str, TracedProgram],
    args: tuple[Any, ...],
    constant: set[int],
    repeats: int,
) -> dict[str, Times]:
    """Returns what the function takes, and what others do after constants were folded."""
    others = [arg for k, arg in enumerate(args) if k not in constant]
    calls: dict[str, Callable[[], Any]] = {"before": partial(jax.jit(fn), *args)}
    for name in ("folded", "found"):
        folded = written[name].fold(*(args[k] for k in sorted(constant)))
        calls[name] = partial(jax.jit(written[name].run), folded, *others)
    return turns(calls, repeats=repeats)


def _is_given(terms: Terms, number: int) -> bool:
    """Returns whether nothing is done to what is not known before."""
    return terms.constant[number] or terms[number].operator == "argument"


def _drawn(args: tuple[Any, ...], program: Program, seed: int) -> tuple[Any, ...]:
    """Returns random arguments, but for scalars of Python, which take any dtype."""
    drawn = random_arguments(program.arguments(), seed)
    return jax.tree.map(
        lambda arg, number: arg if isinstance(arg, complex | float | int) else number, args, drawn
    )


def _given(args: tuple[Any, ...], drawn: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns arguments on the device, with numbers that were drawn in the place of shapes.

    NumPy's arrays would be copied there in each call that takes them, but folded ones would not.
    """
    shapes = jax.ShapeDtypeStruct
    return jax.tree.map(
        lambda arg, number: number if isinstance(arg, shapes) else jax.device_put(arg), args, drawn
    )
