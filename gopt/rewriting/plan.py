"""Plans of rewritings: the terms of an equal program in a file, without weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from gopt.graph.op_costs import num_bytes
from gopt.host.files import read_fields, read_value
from gopt.measure.timing import memory
from gopt.program.effects import DropEffects, drop
from gopt.program.hashing import check_fingerprint, fingerprint
from gopt.program.program import Program, trace_program
from gopt.result import Candidate, check_constants
from gopt.rewriting.encoding import check_encoded, decode, encode
from gopt.rewriting.ir.from_program import terms_of_program
from gopt.rewriting.ir.operators import OPERATORS
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram, TracedProgram
from gopt.xla.applied import (
    Executable,
    PartlyDonating,
    apply_executable,
    executable,
    fold_constants,
    own_executable,
)

WHOLE, FOLDED = "rewritten", "rewritten, folded"
OWN, OWN_FOLDED = "XLA", "XLA, folded"

_INDEX = range(2**31)
_KINDS = {
    **{"fingerprint": str, "constant_argnums": [_INDEX], "chosen": str, "num_terms": _INDEX},
    **{"chosen_folded": (None, str), "terms": [list], "roots": [_INDEX]},
}


@dataclass(frozen=True, repr=False)
class RewritePlan:
    """An equal program of a function, as terms.

    Attributes:
      fingerprint: of the function's program.
      constant_argnums: positions of the constant arguments.
      chosen: name of the candidate that `apply(fn, *args)` returns.
      chosen_folded: name of the candidate for `apply(..., constants=...)`, or `None`.
      num_terms: number of terms of the function itself, which are read from it again.
      terms: operator, attributes and inputs of each further term; attributes are encoded.
      roots: results of the rewritten program. A number below `num_terms` is a term of the function.
    """

    fingerprint: str
    constant_argnums: tuple[int, ...]
    chosen: str
    chosen_folded: str | None
    num_terms: int
    terms: tuple[Any, ...]
    roots: tuple[int, ...]

    def __repr__(self) -> str:
        return f"<RewritePlan of {len(self.terms)} new terms, program {self.fingerprint}>"

    def row(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def apply(
        self,
        fn: Callable[..., Any],
        *args: Any,
        constants: Mapping[int, Any] | None = None,
        nested: bool = False,
        drop_effects: DropEffects = None,
    ) -> Any:
        """Return `fn` as rewritten; see `gopt.result.Result.apply`.

        Args:
          fn: the function that was rewritten, or one that is traced to the same equations.
          *args: as it was rewritten for; shapes are enough.
          constants: values of the constant arguments by position.
          nested: whether compiler options are always left out; there are none here.
          drop_effects: as it was given to the verb.

        Raises:
          ValueError: the plan is of another program, or constants are missing.
        """
        fn = drop(fn, drop_effects)
        program = trace_program(fn, *args)
        check_fingerprint(program, self.fingerprint)
        name = self.chosen if constants is None else self.chosen_folded
        if name is None:
            raise ValueError("constants are given: expected none, nothing was decided for them")
        terms, before, after = self._read(program)
        written = RewrittenProgram(
            terms, before if name == OWN_FOLDED else after, program, set(self.constant_argnums)
        )
        found = executable_of(name, fn, written, program)
        if constants is None:
            return apply_executable(found, name=name, nested=nested)
        check_constants(constants, self.constant_argnums)
        return fold_constants(found, constants, program, nested=nested)

    def _read(self, program: Program) -> tuple[Terms, tuple[int, ...], tuple[int, ...]]:
        """Return the terms, and the results of the function and of the rewritten program."""
        terms = Terms()
        before = terms_of_program(terms, program, known_leaves(program, self.constant_argnums))
        if len(terms) != self.num_terms:
            raise ValueError(f"fn has {len(terms)} terms: expected {self.num_terms}")
        number = list(range(self.num_terms))
        for k, (operator, attributes, inputs) in enumerate(self.terms):
            try:
                decoded = {name: decode(value, terms) for name, value in attributes.items()}
                number.append(terms.add(operator, [number[i] for i in inputs], **decoded))
            except Exception as error:  # rules for shapes raise errors of any kind
                raise ValueError(f"terms[{k}] is no term of {operator}: {error}") from error
        after = tuple(number[root] for root in self.roots)
        found, expected = ([terms.shapes[k] for k in roots] for roots in (after, before))
        if found != expected:
            raise ValueError(f"roots are {found}: expected the results of fn, {expected}")
        return terms, before, after


def read_plan(row: dict[str, Any]) -> RewritePlan:
    """Return a plan from its JSON values.

    Raises:
      ValueError: a field is of another type or out of range. The message names it.
    """
    fields = read_fields(row, _KINDS)
    for name, known in (
        ("chosen", (OWN, WHOLE)),
        ("chosen_folded", (OWN, OWN_FOLDED, FOLDED, None)),
    ):
        if fields[name] not in known:
            raise ValueError(f"{name} is {fields[name]!r}: expected one of {known}")
    terms = tuple(
        _read_term(term, fields["num_terms"] + k, f"terms[{k}]")
        for k, term in enumerate(fields["terms"])
    )
    read_value(row["roots"], [range(fields["num_terms"] + len(terms))], "roots")
    return RewritePlan(**{**fields, "terms": terms})


def _read_term(term: list[Any], number: int, where: str) -> list[Any]:
    """Return a term of a file, after a check of its types; inputs have smaller numbers."""
    if len(term) != 3:
        raise ValueError(f"{where} has {len(term)} parts: expected operator, attributes, inputs")
    operator = read_value(term[0], str, f"{where}[0]")
    if operator not in OPERATORS:
        raise ValueError(f"{where} has operator {operator!r}: expected one of {sorted(OPERATORS)}")
    attributes = read_value(term[1], dict, f"{where}[1]")
    for name, value in attributes.items():
        check_encoded(value, f"{where}.{name}")
    read_value(term[2], [range(number)], f"{where}[2]")
    return [operator, attributes, term[2]]


def make_plan(
    program: Program,
    constant_argnums: Sequence[int],
    chosen: str,
    chosen_folded: str | None,
    terms: Terms,
    num_terms: int,
    roots: Sequence[int],
) -> RewritePlan:
    """Return the plan of a rewritten program.

    Args:
      program: the function as equations.
      constant_argnums: positions of the constant arguments.
      chosen: name of the chosen candidate.
      chosen_folded: name of the candidate chosen for folded constants, or `None`.
      terms: terms of the function, then other terms.
      num_terms: number of terms of the function.
      roots: results of the rewritten program.
    """
    live = terms.live(roots)
    new = [k for k in live if k >= num_terms]
    number = dict(enumerate(range(num_terms)))
    number |= {k: position for position, k in enumerate(new, num_terms)}
    rows = []
    for k in new:
        operator, attributes, inputs = terms[k]
        encoded = {name: encode(value, terms, num_terms) for name, value in attributes}
        rows.append([operator, encoded, [number[i] for i in inputs]])
    return RewritePlan(
        fingerprint=fingerprint(program),
        constant_argnums=tuple(sorted(constant_argnums)),
        chosen=chosen,
        chosen_folded=chosen_folded,
        num_terms=num_terms,
        terms=tuple(rows),
        roots=tuple(number[root] for root in roots),
    )


def known_leaves(program: Program, constant_argnums: Sequence[int]) -> list[bool]:
    """Return of each flat argument whether it is constant."""
    args = enumerate(program.arguments())
    return [k in constant_argnums for k, arg in args for _ in jax.tree.leaves(arg)]


def executable_of(
    name: str, fn: Callable[..., Any], written: TracedProgram, program: Program
) -> Executable:
    """Return a candidate as an executable.

    Args:
      name: name of the candidate.
      fn: the function itself.
      written: terms of the function, or of the rewritten program.
      program: equations of the function.
    """
    if name == OWN:
        return own_executable(fn, {}, program)
    if name == WHOLE:
        return executable(written, None, program)
    known = known_leaves(program, tuple(written.constant))
    donated = [d for d, is_known in zip(program.donated, known, strict=True) if not is_known]
    jitted = PartlyDonating(jax.jit, written.run, donated)
    function = jitted if any(donated) else jax.jit(written.run)
    return Executable(function, function, {}, written.fold)


def compiled_candidate(
    name: str,
    decision: RewrittenProgram | None,
    predicted: float | None,
    found: Executable,
    args: Sequence[Any],
    *,
    folded: Any = (),
) -> Candidate[RewrittenProgram | None]:
    """Return a candidate with its bytes; it is compiled.

    Args:
      name: name of the candidate.
      decision: the program as terms; `None` for the function itself.
      predicted: cost by the model, s.
      found: the program as an executable.
      args: arguments of the executable.
      folded: folded constants among the arguments.
    """
    needs = memory(found.function.lower(*args).compile())
    size = int(sum(map(num_bytes, jax.tree.leaves(folded))))
    return Candidate(name, decision, predicted, needs, size, executable=found)
