"""Matches and costs of programs, the slow way: all terms are tried, nothing is remembered."""

import itertools

from gopt.rewriting.patterns import match


def matches(terms, rules, roots):
    """Returns pairs of a rule's name and the terms that it would replace."""
    live = terms.live(roots)
    found = set()
    for rule in rules:
        for chosen in itertools.permutations(live, len(rule.source)):
            bounds = [{}]
            for pattern, number in zip(rule.source, chosen, strict=True):
                bounds = [
                    more
                    for bound in bounds
                    for more in match(terms, pattern, number, rule.shapes, bound)
                ]
            if any(all(terms.constant[bound[name]] for name in rule.constant) for bound in bounds):
                found.add((rule.name, frozenset(chosen)))
    return found


def cost(terms, roots, of_op):
    """Returns the cost of a program: each term that it needs, once."""
    total, needed = 0.0, set(roots)
    for k in reversed(range(len(terms))):  # readers have larger numbers
        if k in needed:
            operator, attributes, inputs = terms[k]
            needed.update(inputs)
            if not terms.constant[k]:
                total += of_op(operator, attributes, tuple(terms.shapes[i] for i in inputs))
    return total
