"""Growth of an e-graph by rules, and the search for the cheapest program in it."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gopt.host.progress import Progress
from gopt.plots.units import format_seconds
from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import is_alone, replacements
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.result import RewriteSearchResult
from gopt.rewriting.search.saturation.alternatives import Alternatives
from gopt.rewriting.search.saturation.choice import PROVEN
from gopt.rewriting.search.saturation.egraph import EGraph
from gopt.rewriting.search.saturation.extraction import cheapest
from gopt.rewriting.search.saturation.joining import JoinSelection
from gopt.rewriting.search.saturation.needs import Symmetric, is_order
from gopt.rewriting.search.saturation.queries import Side
from gopt.rewriting.search.saturation.regrouping import regroupings


class Limits(NamedTuple):
    """Limits of saturation.

    Attributes:
      rounds: maximum number of rounds; each applies the rules everywhere.
      max_subset: size of the largest subsets of joinable terms that are joined. Whole sets are
        joined at any size; see `gopt.rewriting.search.saturation.joining`.
      max_applications: maximum number of applications of one rule.
      max_terms: number of terms in the e-graph at which saturation ends.
      seconds: time in s after which saturation ends, as soon as one pattern has been found.
    """

    rounds: int = 15
    max_subset: int = 2
    max_applications: int = 1000
    max_terms: int = 15_000
    seconds: float = 60.0


_LIMITS = Limits()


class Saturation:
    """An e-graph that grows by rules, round by round.

    For rules with `alone`, see `gopt.rewriting.rules.rule.Rule`, readers are counted in the given
    program.

    Attributes:
      graph: e-graph.
      origin: name of the rule that added each term, by term.
      stop_reason: reason why saturation ended; empty before.
      is_cut: whether it ended because time ran out.
    """

    def __init__(
        self,
        terms: Terms,
        roots: Sequence[int],
        rules: Sequence[Rule] = RULES,
        limits: Limits = _LIMITS,
    ):
        """Create the e-graph of a program; for arguments and errors see `saturate`."""
        for name, limit in limits._asdict().items():
            if not limit >= 0:
                raise ValueError(f"{name} is {limit}: expected 0 at least")
        self.graph = EGraph(terms, [rule for rule in rules if not is_order(rule)])
        self.origin, self.stop_reason, self.is_cut = dict[int, str](), "", False
        self._terms, self._limits = terms, limits
        self._end = time.monotonic() + limits.seconds
        # A new term may have other readers in each program: it counts as alone.
        self._readers, self._others_read = terms.readers(roots), False
        self._alternatives = Alternatives(terms, roots)
        self._joins = JoinSelection(terms, limits.max_subset, self._alternatives)
        self._orders = regroupings(terms, self._readers, rules)
        self._symmetric, self._applied = Symmetric(rules, terms, roots), Counter[str]()
        # Of this round: terms that the e-graph lacks, also if other programs have them, and pairs
        # of equal terms.
        self._coming, self._equal = set[int](), list[tuple[int, int]]()
        self.graph.add(roots)

    def grow(self) -> Iterator[None]:
        """Apply the rules, and yield after each round, until a limit is met or nothing is new."""
        for _ in range(self._limits.rounds):
            self._coming, self._equal = set(), []
            self._rewrite()
            for pair in self.graph.views():
                if self._is_over():
                    break
                self._add(*pair)
            is_full = self._is_full()
            self.graph.add(equal=self._equal)
            yield
            if self.is_cut:
                self.stop_reason = f"the rules took {self._limits.seconds:g} s"
            elif is_full:
                self.stop_reason = f"there are {len(self.graph.numbers)} terms"
            elif not self._equal:
                self.stop_reason = f"nothing is left to be rewritten{self._left_out()}"
            if self.stop_reason:
                return
        self.stop_reason = f"there were {self._limits.rounds} rounds"

    def are_equal(self, one: int, other: int) -> bool:
        """Return whether two terms are in one e-class, or are once all sums are in one order.

        Args:
          one: term, which is added.
          other: term, which is added.
        """
        self.graph.add((one, other))
        self.graph.add(equal=[pair for each in self._orders for pair in each.sums.read(self.graph)])
        classes = self.graph.classes()
        return classes[one] == classes[other]

    def _is_full(self) -> bool:
        return len(self.graph.numbers) + len(self._coming) >= self._limits.max_terms

    def _is_over(self) -> bool:
        """Return whether time has run out, or there are too many terms."""
        self.is_cut = self.is_cut or time.monotonic() >= self._end
        return self.is_cut or self._is_full()

    def _rewrite(self) -> None:
        """Apply the rules wherever they match, joins first, and reorder sums."""
        if not self.graph.look(self._is_over):
            return
        joining, others = [], []
        for each in self.graph.matches(self._may_pair):
            if self._is_over():
                return
            if not is_alone(each.rule, each.bound, self._readers):
                self._others_read = True
            elif each.rule.is_join:
                joining.append(each)
            elif not self._symmetric.is_needless(each, self._readers):
                others.append(each)
        for each in itertools.chain(self._joins.chosen(joining), others):
            if self._is_over():
                return
            if self._may_apply(each.rule.name):
                by = replacements(self._terms, each)
                self.origin.update((k, each.rule.name) for k in by.values() if k not in self.origin)
                for old, new in by.items():
                    self._add(old, new)
                if each.rule.is_join:
                    self._joins.made(each, by)
                else:
                    self._alternatives.made(by)
        for orders in self._orders:
            for old, new in orders.of(self.graph, self._orders, self._is_over):
                if self._is_over():
                    return
                if self._may_apply(orders.rule):
                    self.origin.setdefault(new, orders.rule)
                    self._add(old, new)
                    self._alternatives.regrouped(new)

    def _may_pair(self, rule: Rule, one: Side, other: Side) -> bool:
        return not self._is_over() and self._joins.may_pair(rule, one, other)

    def _may_apply(self, rule: str) -> bool:
        """Count an application of a rule; return whether it was applied less often than allowed."""
        self._applied[rule] += 1
        return self._applied[rule] <= self._limits.max_applications

    def _add(self, old: int, new: int) -> None:
        """Add two equal terms at the end of the round."""
        self._equal.append((old, new))
        self._coming |= self.graph.missing((old, new), self._coming)

    def _left_out(self) -> str:
        """Return the words for matches that no rule was applied to."""
        left, most = [], self._limits.max_applications
        if self._joins.left_out:
            left.append(f"joins of subsets of more than {self._limits.max_subset}")
        if max(self._applied.values(), default=0) > most:
            left.append(f"rules that were applied {most} times")
        if self._others_read or any(each.sums.left_out for each in self._orders):
            left.append("sums and products that the program reads elsewhere")
        return f", but for {' and '.join(left)}" if left else ""


def saturate(
    terms: Terms, roots: Sequence[int], rules: Sequence[Rule] = RULES, limits: Limits = _LIMITS
) -> Saturation:
    """Apply rules to a program in an e-graph until a limit is reached or nothing is new.

    Args:
      terms: terms to add to.
      roots: results of the program.
      rules: rules to apply.
      limits: limits at which saturation ends.

    Raises:
      ValueError: a limit is negative.
    """
    found = Saturation(terms, roots, rules, limits)
    for _ in found.grow():
        pass
    return found


def saturation(
    terms: Terms,
    roots: Sequence[int],
    cost: OpCost,
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    max_subset: int = 2,
    max_applications: int = 1000,
    max_terms: int = 15_000,
    seconds: float = 120.0,
    progress: Progress | None = None,
) -> RewriteSearchResult:
    """Return the cheapest program that saturation finds.

    The best program so far is looked up after each round, so that no limit loses it. If time runs
    out, the reason why the search ended says so: the result is then not reproducible. The reported
    rewrites are the rules that added the program's new terms, one per term.

    Args:
      terms: terms to add to.
      roots: results of the program.
      cost: cost of an op.
      rules: rules to apply.
      rounds: see `Limits`.
      max_subset: see `Limits`.
      max_applications: see `Limits`.
      max_terms: see `Limits`.
      seconds: time limit in s. Half of it is for saturation, what is left for the integer program.
      progress: shows progress, and ends the search when its time is over or at Ctrl-C.

    Raises:
      ValueError: a limit is negative.
    """
    if not seconds >= 0:
        raise ValueError(f"seconds is {seconds}: expected 0 at least")
    progress = progress or Progress()
    seconds = min(seconds, progress.remaining)
    end = time.monotonic() + seconds
    limits = Limits(rounds, max_subset, max_applications, max_terms, seconds / 2)
    growing, prices = Saturation(terms, roots, rules, limits), TermCosts(terms, cost)
    last = cheapest(growing.graph, roots, prices, seconds=0.0)
    found = [last]
    progress.phase("rounds of saturation", rounds)
    with progress.interruptible():
        for _ in growing.grow():
            if progress.is_over:
                break
            found.append(cheapest(growing.graph, roots, prices, seconds=0.0))
            least = min(each.cost for each in found)
            progress.advance(len(found) - 1, f"best {format_seconds(least)} by the model")
        progress.phase("integer program")
        left = max(end - time.monotonic(), 0.0)
        last = cheapest(growing.graph, roots, prices, seconds=left)
    best = min((last, *found), key=lambda each: each.cost)
    if last.cost <= best.cost * (1 + PROVEN):
        best = last
    gap = 1 - (1 - last.gap) * last.cost / best.cost if best.cost else 0.0
    new = set(best.chosen) & growing.origin.keys() - set(terms.live(roots))
    used = tuple(growing.origin[k] for k in sorted(new))
    stopped = growing.stop_reason
    if gap > PROVEN:
        stopped += f"; it is not proven that none of them costs up to {gap:.1%} less"
    if growing.is_cut or gap > PROVEN:
        stopped += f"; cut after {seconds:g} s, so that the result is not reproducible"
    stopped = progress.cut_note or stopped
    return RewriteSearchResult(best.roots, best.cost, used, len(growing.graph.numbers), stopped)
