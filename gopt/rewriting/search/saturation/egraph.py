"""An e-graph: e-classes of equal terms, kept by egglog.

egglog closes the e-classes under congruence (equal inputs make equal terms) and finds rule patterns
in them. Conditions on shapes, attributes and constants, and the building of targets, use the same
code as other searches. Each e-class is represented by its oldest term. Terms enter as files of
rows, which take egglog microseconds each; commands take milliseconds.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gopt.host.extras import optional
from gopt.rewriting.ir.operators import Attributes
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match, applies
from gopt.rewriting.rules.patterns import (
    COMMUTATIVE,
    Apply,
    Bindings,
    bind_attributes,
    bind_shape,
    parts,
)
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.saturation.queries import (
    HEAD,
    VIEWS,
    MayPair,
    Side,
    pairs,
    query,
    view_query,
)

bindings = optional("egglog.bindings", "rewriting", "saturation")


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
        self._seen: set[tuple[str, tuple[int, ...]]] = set()  # views
        # Bindings of each row that was seen before, by the name of its relation; None if none fit.
        self._bound: dict[str, dict[tuple[int, ...], Bindings | None]] = defaultdict(dict)
        self._looks = ["look_views"]  # rule sets that find patterns
        self._run(HEAD)
        for k, rule in enumerate(self.rules):
            for j, pattern in enumerate(rule.source):
                for part in parts(pattern):
                    self._declare(part.operator, len(part.inputs))
                self._run(query(f"{k}_{j}", pattern))
                self._looks.append(f"look_{k}_{j}")

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
        first = self._first(functions)
        return {self._int(row.inputs[0]): first[row.output] for row in functions["T"].rows}

    def look(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Find the patterns of all rules, for `matches` and `views`; return whether all were found.

        Args:
          is_over: function that says whether to stop; it is called before each pattern.
        """
        for name in self._looks:
            if is_over():
                return False
            self._run(f"(run {name} 1)")
        return True

    def matches(self, may_pair: MayPair = lambda *_: True) -> Iterator[Match]:
        """Yield the matches of the rules that `look` found and that were not yielded before.

        Args:
          may_pair: function that says whether a rule of two patterns may match two terms. Pairs
            that may not are not yielded later either.
        """
        functions = self._engine.freeze().functions
        first = self._first(functions)
        for k, rule in enumerate(self.rules):
            sides = [list(self._sides(functions, first, k, j)) for j in range(len(rule.source))]
            if len(sides) == 1:
                for side in sides[0]:
                    if side.is_new:
                        yield Match(rule, (side.number,), side.bound)
            else:
                ones, others = sides
                yield from pairs(rule, ones, others, may_pair)

    def views(self) -> Iterator[tuple[int, int]]:
        """Yield each new view of a view that `look` found, with an equal simpler term."""
        functions, terms = self._engine.freeze().functions, self.terms
        for name in functions:
            if name.startswith("view_"):
                _, outer, inner, _ = name.split("_")
                for row in functions[name].rows:
                    numbers = tuple(map(self._int, row.inputs))
                    if (name, numbers) in self._seen:
                        continue
                    self._seen.add((name, numbers))
                    number, of, then, *inputs = numbers
                    within = terms.add(inner, inputs, **dict(self._attributes[then]))
                    yield number, terms.add(outer, [within], **dict(self._attributes[of]))

    def _sides(self, functions: Any, first: Mapping[Any, int], k: int, j: int) -> Iterator[Side]:
        """Yield the terms that match a source pattern of a rule, see `_query`, oldest first."""
        rule, name = self.rules[k], f"match_{k}_{j}"
        pattern, known = rule.source[j], self._bound[name]
        names, operators = sorted(pattern.names()), list(parts(pattern))
        kinds = [True] * len(names) + [True, False] * len(operators)  # a term, or attributes
        rows = sorted(
            tuple(
                first[value] if is_term else self._int(value)
                for value, is_term in zip(row.inputs, kinds, strict=True)
            )
            for row in functions[name].rows
        )
        for row in rows:
            is_new = row not in known
            if is_new:
                known[row] = self._bindings(rule, j, names, operators, row)
            bound = known[row]
            if bound is not None:
                yield Side(row[len(names)], bound, is_new)

    def _bindings(
        self, rule: Rule, j: int, names: list[str], operators: list[Apply], row: tuple[int, ...]
    ) -> Bindings | None:
        """Return the bindings of a row; None if its conditions fail."""
        bound: Bindings = dict(zip(names, row, strict=False))
        for name, letters in rule.shapes.items():
            if name in bound and not bind_shape(self.terms.shapes[bound[name]], letters, bound):
                return None
        columns = row[len(names) :]
        for part, number, given in zip(operators, columns[::2], columns[1::2], strict=True):
            then = bind_attributes(self.terms, part, number, self._attributes[given], bound)
            if then is None:
                return None
            bound = then
        if not applies(self.terms, rule, j, columns[0], bound):
            return None
        return {**bound, "inside": columns[2::2]}

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
        for outer, inner in VIEWS:
            if operator == inner:
                self._declare(outer, 1)
                self._run(view_query(outer, inner, arity))

    def _first(self, functions: Any) -> dict[Any, int]:
        """Return the representative of each e-class."""
        return {row.inputs[0]: self._int(row.output) for row in functions["first"].rows}

    def _int(self, value: Any) -> int:
        return self._engine.value_to_i64(value)

    def _run(self, program: str) -> None:
        self._engine.run_program(*self._engine.parse_program(program))
