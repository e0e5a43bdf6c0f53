"""Details of a rewriting: rules, values that differ, and costs by the model."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gopt.result import Result
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.plan import FOLDED, OWN_FOLDED, WHOLE, RewritePlan, make_plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class RewriteReport:
    """Details of a rewriting.

    Attributes:
      rules: names of the rules that led to the rewritten program, in the words of the search.
      difference: largest difference between its values and the function's, as a share of the
        largest value of an array.
      folded_difference: the same for the function with folded constants, without rewriting.
      tolerance: largest difference by rounding, see `gopt.measure.equality.tolerance`.
      is_telling: whether random values can tell functions apart: all values that the search has
        changed, and at least one value that depends on arguments that are not constant.
      costs: seconds by the model, of the function and of the rewritten program; values that depend
        on constants alone cost nothing.
      stop_reason: why the search ended.
      values_note: why values on drawn arguments are missing; empty if they are not.
      is_compared: whether the comparison of values was not interrupted.
      unknown: primitives that no rule knows, and how often the function has each.
      constant_argnums: positions of the constant arguments.
      terms: terms of the function, then terms that the search added.
      num_terms: number of terms of the function.
      roots: results of the rewritten program.
      cut_note: a sentence if the work was cut short; else empty.
    """

    rules: tuple[str, ...]
    difference: float
    folded_difference: float
    tolerance: float
    is_telling: bool
    costs: tuple[float, float]
    stop_reason: str
    values_note: str
    is_compared: bool
    unknown: Counter[str]
    constant_argnums: tuple[int, ...]
    terms: Terms
    num_terms: int
    roots: tuple[int, ...]
    cut_note: str = ""

    verb = "rewrite"
    unit = "s"

    @property
    def refused(self) -> dict[str, str]:
        """Candidates that must not be chosen, and why."""
        found: dict[str, str] = {}
        if not self.is_compared:
            return dict.fromkeys((WHOLE, FOLDED, OWN_FOLDED), "its values were not compared")
        if not self.is_telling:
            why = "its values tell nothing: one is not finite, or all of an array are the same"
            found |= {WHOLE: why, FOLDED: why}
        elif not self.difference <= self.tolerance:
            why = f"its values differ by {self.difference:.0e}"
            found |= {WHOLE: why, FOLDED: why}
        if not self.folded_difference <= self.tolerance:
            found[OWN_FOLDED] = f"its values differ by {self.folded_difference:.0e}"
        return found

    def header(self, result: Result) -> str:
        """Return the line above the table."""
        return f"{len(result.program.equations)} equations; {self.stop_reason}"

    def notes(self, result: Result) -> list[str]:
        """Return rules that were applied, primitives that no rule knows, and what was cut short."""
        del result
        lines = [f"{count:4} × {rule}" for rule, count in Counter(self.rules).items()]
        if self.unknown:
            names = (f"{count} × {name}" for name, count in self.unknown.most_common())
            lines.append(f"no rule knows: {', '.join(names)}")
        cut = self.cut_note if self.cut_note != self.stop_reason else ""
        return [*lines, *filter(None, (self.values_note, cut))]

    def plan(self, result: Result) -> RewritePlan:
        """Return the decision as a plan."""
        folded = result.after_folded
        return make_plan(
            result.program,
            self.constant_argnums,
            result.after.name,
            folded and folded.name,
            self.terms,
            self.num_terms,
            self.roots,
        )

    def plot(self, result: Result) -> "Figure":
        """Return the measured times of the candidates as shares of the first one's."""
        from gopt import plots

        return plots.time_ratios({c.name: c.ratio() for c in result.candidates if c.times})
