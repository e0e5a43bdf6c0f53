"""Queries of an e-graph: egglog programs that find patterns, and pairs of what they find.

Patterns are found one at a time: pairs of terms that match the two patterns of a rule could be
quadratically many, so they are made from the terms one by one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gopt.rewriting.rules.matching import Match
from gopt.rewriting.rules.patterns import Apply, Bindings
from gopt.rewriting.rules.rule import Rule

HEAD = """
(sort Term)
(constructor T (i64) Term)  ; by number
(function first (Term) i64 :merge (min old new))  ; the term that stands for a class
(relation changing (Term))  ; what is not known before the program runs
(relation leaf (i64)) (relation changes (i64)) (relation equal (i64 i64))
(ruleset grow) (ruleset look_views)
(rule ((leaf n)) ((set (first (T n)) n)) :ruleset grow)
(rule ((changes n)) ((changing (T n))) :ruleset grow)
(rule ((equal n m)) ((union (T n) (T m))) :ruleset grow)
"""
# Pairs of operators that may be a view of a view, or of a part; see
# `gopt.rewriting.ir.terms.simpler`.
VIEWS = (
    ("transpose", "transpose"),
    ("reshape", "reshape"),
    ("slice", "slice"),
    ("slice", "concat"),
)


class Side(NamedTuple):
    """A term that matches a source pattern.

    Attributes:
      number: the term.
      bound: bindings of the pattern's variables.
      is_new: whether it was found by the last `EGraph.look`.
    """

    number: int
    bound: Bindings
    is_new: bool


MayPair = Callable[[Rule, Side, Side], bool]


def pairs(
    rule: Rule, ones: Sequence[Side], others: Sequence[Side], may_pair: MayPair
) -> Iterator[Match]:
    """Yield the matches of a rule of two patterns: different terms with equal shared bindings."""
    if not (ones and others):
        return
    shared = sorted(ones[0].bound.keys() & others[0].bound.keys() - {"inside"})
    by: dict[tuple[Any, ...], list[Side]] = defaultdict(list)
    for other in others:
        by[tuple(other.bound[name] for name in shared)].append(other)
    for one in ones:
        for other in by.get(tuple(one.bound[name] for name in shared), ()):
            is_new = one.is_new or other.is_new
            if is_new and one.number != other.number and may_pair(rule, one, other):
                inside = (*one.bound["inside"], *other.bound["inside"])
                bound = {**one.bound, **other.bound, "inside": inside}
                yield Match(rule, (one.number, other.number), bound)


def query(name: str, pattern: Apply) -> str:
    """Return the egglog program that finds a pattern.

    A row has the term of each variable, sorted by name, then term and attributes of each operator,
    in the order of `parts`.
    """
    facts: list[str] = []
    columns: list[str] = []

    def visit(pattern: Any) -> str:
        if isinstance(pattern, str):
            return f"name_{pattern}"
        at = len(columns) // 2
        columns.extend((f"t{at}", f"p{at}"))
        inputs = " ".join(map(visit, pattern.inputs))
        facts.append(f"(= t{at} ({pattern.operator}_{len(pattern.inputs)} p{at} {inputs}))")
        return f"t{at}"

    facts.append(f"(changing {visit(pattern)})")
    variables = [f"name_{each}" for each in sorted(pattern.names())]
    sorts = ["Term"] * len(variables) + ["Term", "i64"] * (len(columns) // 2)
    return (
        f"(relation match_{name} ({' '.join(sorts)})) (ruleset look_{name})"
        f"(rule ({' '.join(facts)}) ((match_{name} {' '.join((*variables, *columns))}))"
        f" :ruleset look_{name})"
    )


def view_query(outer: str, inner: str, arity: int) -> str:
    """Return the egglog program that finds views of an operator.

    A row has the term, the attributes of both operators, and the inputs of the inner one.
    """
    at = range(arity)
    firsts = " ".join(f"(= f{k} (first i{k}))" for k in at)
    within = f"({inner}_{arity} q {' '.join(f'i{k}' for k in at)})"
    facts = f"(= t ({outer}_1 p {within})) (changing t) (= n (first t)) {firsts}"
    relation = f"view_{outer}_{inner}_{arity}"
    return (
        f"(relation {relation} ({' '.join(['i64'] * (3 + arity))}))"
        f"(rule ({facts}) (({relation} n p q {' '.join(f'f{k}' for k in at)})) :ruleset look_views)"
    )
