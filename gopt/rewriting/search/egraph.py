"""An e-graph: e-classes of equal terms, kept by egglog.

egglog closes the e-classes under congruence (equal inputs make equal terms) and finds rule patterns
in them. Conditions on shapes, attributes and constants, and the building of targets, use the same
code as other searches. Each e-class is represented by its oldest term. Terms enter as files of
rows, which take egglog microseconds each; commands take milliseconds.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gopt.host.extras import optional
from gopt.rewriting.ir.operators import Attributes
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match, applies
from gopt.rewriting.rules.patterns import COMMUTATIVE, Bindings, bind_attributes, bind_shape, parts
from gopt.rewriting.rules.rule import Rule

bindings = optional("egglog.bindings", "rewriting", "saturation")

_HEAD = """
(sort Term)
(constructor T (i64) Term)  ; by number
(function first (Term) i64 :merge (min old new))  ; the term that stands for a class
(relation changing (Term))  ; what is not known before the program runs
(relation leaf (i64)) (relation changes (i64)) (relation equal (i64 i64))
(ruleset grow) (ruleset look)
(rule ((leaf n)) ((set (first (T n)) n)) :ruleset grow)
(rule ((changes n)) ((changing (T n))) :ruleset grow)
(rule ((equal n m)) ((union (T n) (T m))) :ruleset grow)
"""
# Pairs of operators that may be a view of a view, or of a part; see
# `gopt.rewriting.ir.terms.simpler`.
_VIEWS = (
    ("transpose", "transpose"),
    ("reshape", "reshape"),
    ("slice", "slice"),
    ("slice", "concat"),
)


class EGraph:
    """Terms in e-classes of equal terms.

    Attributes:
      terms: all terms.
      rules: rules whose patterns are found.
      numbers: terms in the e-graph, in order of addition.
    """

    def __init__(self, terms: Terms, rules: Sequence[Rule]):
        """Create an e-graph without terms.

        Args:
          terms: terms that may be added; rules add their targets here.
          rules: rules whose patterns are found.
        """
        self.terms, self.rules = terms, tuple(rules)
        self.numbers: list[int] = []
        self._in: set[int] = set()  # the same terms
        self._engine = bindings.EGraph()
        self._ids: dict[Attributes, int] = {}
        self._attributes: list[Attributes] = []
        self._known: set[tuple[str, int]] = set()  # (operator, number of inputs)
        self._seen: set[tuple[str, tuple[int, ...]]] = set()
        self._run(_HEAD)
        for k, rule in enumerate(self.rules):
            for pattern in rule.source:
                for part in parts(pattern):
                    self._declare(part.operator, len(part.inputs))
            self._run(_query(k, rule))

    def missing(self, numbers: Iterable[int], others: Collection[int]) -> set[int]:
        """Return the given terms and their ancestors that are not in the e-graph.

        Args:
          numbers: terms.
          others: terms to leave out.
        """
        found, stack = set[int](), list(numbers)
        while stack:
            number = stack.pop()
            if not (number in self._in or number in others or number in found):
                found.add(number)
                stack.extend(self.terms[number].inputs)
        return found

    def add(self, numbers: Iterable[int] = (), equal: Iterable[tuple[int, int]] = ()) -> None:
        """Add terms with their ancestors, and declare equal terms.

        Args:
          numbers: terms to add.
          equal: pairs of equal terms, which are added as well.
        """
        rows: dict[str, list[Sequence[int]]] = defaultdict(list)
        rows["equal"] = list(equal)
        wanted = itertools.chain(numbers, *rows["equal"])
        for number in self.terms.live(set(wanted) - self._in):
            if number in self._in:
                continue
            operator, attributes, inputs = self.terms[number]
            self._in.add(number)
            self.numbers.append(number)
            if not self.terms.constant[number]:
                rows["changes"].append((number,))
            if operator == "argument":
                rows["leaf"].append((number,))
                continue
            if attributes not in self._ids:
                self._ids[attributes] = len(self._attributes)
                self._attributes.append(attributes)
            self._declare(operator, len(inputs))
            name = f"row_{operator}_{len(inputs)}"
            rows[name].append((number, self._ids[attributes], *inputs))
        with TemporaryDirectory() as folder:
            for name, lines in rows.items():
                path = Path(folder) / name
                path.write_text("\n".join("\t".join(map(str, line)) for line in lines))
                self._run(f'(input {name} "{path}")')
        self._run("(run grow 1)")

    def classes(self) -> dict[int, int]:
        """Return the representative of each term's e-class."""
        functions = self._engine.freeze().functions
        first = {row.inputs[0]: self._int(row.output) for row in functions["first"].rows}
        return {self._int(row.inputs[0]): first[row.output] for row in functions["T"].rows}

    def matches(self) -> Iterator[Match]:
        """Yield the matches of the rules that were not yielded before."""
        self._run("(run look 1)")
        functions = self._engine.freeze().functions
        for k, rule in enumerate(self.rules):
            for row in self._new(functions, f"match_{k}"):
                found = self._match(rule, row)
                if found is not None:
                    yield found

    def views(self) -> Iterator[tuple[int, int]]:
        """Yield each new view of a view that `matches` found, with an equal simpler term."""
        functions, terms = self._engine.freeze().functions, self.terms
        for name in functions:
            if name.startswith("view_"):
                _, outer, inner, _ = name.split("_")
                for number, of, then, *inputs in self._new(functions, name):
                    within = terms.add(inner, inputs, **dict(self._attributes[then]))
                    yield number, terms.add(outer, [within], **dict(self._attributes[of]))

    def _match(self, rule: Rule, row: tuple[int, ...]) -> Match | None:
        """Return the match of a row found by egglog, see `_query`; None if its conditions fail."""
        names = _names(rule)
        bound: Bindings = dict(zip(names, row, strict=False))
        for name, letters in rule.shapes.items():
            if name in bound and not bind_shape(self.terms.shapes[bound[name]], letters, bound):
                return None
        columns, roots, inside = iter(row[len(names) :]), list[int](), list[int]()
        for j, pattern in enumerate(rule.source):
            for depth, part in enumerate(parts(pattern)):
                number, given = next(columns), self._attributes[next(columns)]
                then = bind_attributes(self.terms, part, number, given, bound)
                if then is None:
                    return None
                bound = then
                (inside if depth else roots).append(number)
            if not applies(self.terms, rule, j, roots[j], bound):
                return None
        return Match(rule, tuple(roots), {**bound, "inside": tuple(inside)})

    def _declare(self, operator: str, arity: int) -> None:
        """Declare an operator with some number of inputs to egglog."""
        if (operator, arity) in self._known:
            return
        self._known.add((operator, arity))
        name, variables = f"{operator}_{arity}", [f"i{k}" for k in range(arity)]
        inputs = [f"(T {x})" for x in variables]
        orders = [inputs, inputs[::-1]] if operator in COMMUTATIVE else [inputs]
        equal = " ".join(f"(union (T n) ({name} p {' '.join(order)}))" for order in orders)
        self._run(
            f"(constructor {name} (i64{' Term' * arity}) Term)"
            f"(relation row_{name} (i64 i64{' i64' * arity}))"
            f"(rule ((row_{name} n p {' '.join(variables)})) ({equal} (set (first (T n)) n))"
            " :ruleset grow)"
        )
        for outer, inner in _VIEWS:
            if operator == inner:
                self._declare(outer, 1)
                self._run(_view(outer, inner, arity))

    def _new(self, functions: Any, name: str) -> Iterator[tuple[int, ...]]:
        """Yield the rows of a relation that were not yielded before."""
        for row in functions[name].rows:
            numbers = tuple(map(self._int, row.inputs))
            if (name, numbers) not in self._seen:
                self._seen.add((name, numbers))
                yield numbers

    def _int(self, value: Any) -> int:
        return self._engine.value_to_i64(value)

    def _run(self, program: str) -> None:
        self._engine.run_program(*self._engine.parse_program(program))


def _names(rule: Rule) -> list[str]:
    """Return the variables of a rule, sorted."""
    return sorted(set().union(*(pattern.names() for pattern in rule.source)))


def _query(k: int, rule: Rule) -> str:
    """Return the egglog program that finds the source patterns of a rule.

    A row has the term of each variable, sorted by name, then term and attributes of each operator,
    in the order of `parts`.
    """
    facts: list[str] = []
    columns: list[str] = []

    def visit(pattern: Any) -> str:
        if isinstance(pattern, str):
            return f"name_{pattern}"
        at = len(columns) // 2
        columns.extend((f"f{at}", f"p{at}"))
        inputs = " ".join(map(visit, pattern.inputs))
        facts.append(f"(= t{at} ({pattern.operator}_{len(pattern.inputs)} p{at} {inputs}))")
        facts.append(f"(= f{at} (first t{at}))")
        return f"t{at}"

    roots = [visit(pattern) for pattern in rule.source]
    facts += [f"(changing {root})" for root in roots]
    facts += [f"(!= {one} {other})" for one, other in itertools.pairwise(roots)]
    names = _names(rule)
    facts += [f"(= first_{name} (first name_{name}))" for name in names]
    row = [*(f"first_{name}" for name in names), *columns]
    return (
        f"(relation match_{k} ({' '.join(['i64'] * len(row))}))"
        f"(rule ({' '.join(facts)}) ((match_{k} {' '.join(row)})) :ruleset look)"
    )


def _view(outer: str, inner: str, arity: int) -> str:
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
        f"(rule ({facts}) (({relation} n p q {' '.join(f'f{k}' for k in at)})) :ruleset look)"
    )
