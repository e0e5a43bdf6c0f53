"""Reference matches of some rules, and costs of programs; slow."""

import itertools
import math

from gopt.rewriting.rules.matching import Matcher

PAIRS = "xa, xb are parts of x[a|b]", "xa, ya are parts of [x|y]a"
SINGLE = "(xa)b = x(ab)", "xa + xb = x(a + b)", "(x + y) + z = x + (y + z)"


def matches(terms, roots):
    """Return pairs of a rule's name, in `PAIRS` or `SINGLE`, and the terms that it replaces."""
    live = terms.live(roots)

    def of(operator, number):
        return terms[number].operator == operator

    def needs(number):
        inputs = terms[number].inputs
        return set(inputs).union(*map(needs, inputs))

    found = set()
    for a, b in itertools.permutations([k for k in live if of("matmul", k)], 2):
        for side in (0, 1):
            shares = terms[a].inputs[side] == terms[b].inputs[side]
            if shares and a not in needs(b) and b not in needs(a):
                found.add((PAIRS[side], frozenset((a, b))))
    for k in live:
        inputs = terms[k].inputs
        if of("matmul", k) and of("matmul", inputs[0]):
            found.add((SINGLE[0], frozenset([k])))
        products = [terms[i].inputs for i in inputs if of("matmul", i)]
        if of("add", k) and len(products) == 2 and products[0][0] == products[1][0]:
            found.add((SINGLE[1], frozenset([k])))
        if of("add", k) and any(of("add", i) for i in inputs):
            found.add((SINGLE[2], frozenset([k])))
    return found


def cost(terms, roots, of_op):
    """Return the cost of a program; each term that it needs counts once."""
    total, needed = 0.0, set(roots)
    for k in reversed(range(len(terms))):  # consumers have larger numbers
        if k in needed:
            operator, attributes, inputs = terms[k]
            needed.update(inputs)
            if not terms.constant[k]:
                total += of_op(
                    operator,
                    attributes,
                    tuple(terms.shapes[i] for i in inputs),
                    tuple(terms.constant[i] for i in inputs),
                )
    return total


def choices_of_least_cost(choices, roots, costs):
    """Return the lowest cost over all choices of terms; each needed term counts once."""
    least = math.inf
    for chosen in itertools.product(*choices.values()):
        of = dict(zip(choices, chosen, strict=True))

        def needed(c, path, of=of):
            """Return the classes that a class needs; None if it needs itself."""
            if c in path:
                return None
            each = [needed(i, {*path, c}) for i in choices[c][of[c]]]
            return None if None in each else {c}.union(*each)

        every = [needed(root, set()) for root in roots]
        if None not in every:
            least = min(least, sum(costs[of[c]] for c in set().union(*every)))
    return least


def cheapest(terms, roots, rules, of_op, *, most=20_000):
    """Return the lowest cost of all programs that rules reach; all of them are built."""
    matcher, seen, stack = Matcher(terms, rules), {tuple(roots)}, [tuple(roots)]
    least = math.inf
    while stack:
        assert len(seen) < most, "too many programs"
        program = stack.pop()
        least = min(least, cost(terms, program, of_op))
        for found in matcher.matches(program):
            if all(terms.constant[k] for k in found.terms):
                continue
            after = matcher.apply(program, found)
            if after is not None and after not in seen:
                seen.add(after)
                stack.append(after)
    return least
