"""Matches of some rules and costs of programs, the slow way."""

import itertools

PAIRS = "xa, xb are parts of x[a|b]", "xa, ya are parts of [x|y]a"
SINGLE = "(xa)b = x(ab)", "xa + xb = x(a + b)", "(x + y) + z = x + (y + z)"


def matches(terms, roots):
    """Returns pairs of a rule's name, one of those above, and the terms that it would replace."""
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
    """Returns the cost of a program: each term that it needs, once."""
    total, needed = 0.0, set(roots)
    for k in reversed(range(len(terms))):  # readers have larger numbers
        if k in needed:
            operator, attributes, inputs = terms[k]
            needed.update(inputs)
            if not terms.constant[k]:
                total += of_op(operator, attributes, tuple(terms.shapes[i] for i in inputs))
    return total
