"""Candidates: the programs that one rewrite makes of a program."""

from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.cost.pricing import Change
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Matcher, replacements


class Candidate(NamedTuple):
    """A rewrite of a program: replaced terms and their replacements.

    Attributes:
      rule: name of the rule.
      by: pairs of a term and its replacement, in the order of the program.
    """

    rule: str
    by: tuple[tuple[int, int], ...]


def in_order(terms: Terms, roots: Sequence[int]) -> list[int]:
    """Return the terms of a program, inputs first, in an order that depends on the program alone.

    The numbers of terms also depend on the programs that were made before.

    Args:
      terms: terms of the program, and others.
      roots: results of the program.
    """
    found: dict[int, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        number, is_ready = stack.pop()
        if number in found:
            continue
        if is_ready:
            found[number] = None
            continue
        stack.append((number, True))
        stack.extend((i, False) for i in reversed(terms[number].inputs) if i not in found)
    return list(found)


def candidates(
    matcher: Matcher, roots: Sequence[int], order: Sequence[int], most: int
) -> list[Candidate]:
    """Return all distinct results of one rewrite of a program, in the order of the program.

    Rewrites that replace the same terms by the same terms are one candidate. Rewrites that would
    make a term depend on itself are left out, and so are rewrites of terms that are constant.

    Args:
      matcher: matcher of the rules.
      roots: results of the program.
      order: terms of the program, see `in_order`.
      most: largest number of terms of a candidate.
    """
    terms, found = matcher.terms, dict[tuple[tuple[int, int], ...], Candidate]()
    place = {number: k for k, number in enumerate(order)}
    names = {rule.name: k for k, rule in enumerate(matcher.rules)}
    matches = sorted(
        matcher.matches(roots, order),
        key=lambda one: (tuple(place[number] for number in one.terms), names[one.rule.name]),
    )
    size = Change(terms, lambda number: 1.0, roots)
    for match in matches:
        by = replacements(terms, match)
        key = tuple(sorted(by.items(), key=lambda pair: place[pair[0]]))
        is_new = key not in found and by and not any(terms.constant[old] for old in by)
        if is_new and len(order) + size.of(by) <= most and not _is_cyclic(terms, by):
            found[key] = Candidate(match.rule.name, key)
    return list(found.values())


def _is_cyclic(terms: Terms, by: dict[int, int]) -> bool:
    """Return whether a replacement contains a term that is replaced."""
    least, seen, stack = min(by), set[int](), list(by.values())
    while stack:
        number = stack.pop()
        if number in by:
            return True
        if number > least and number not in seen:
            seen.add(number)
            stack.extend(terms[number].inputs)
    return False
