"""Digests tell programs apart, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np

from gopt.program.program import trace_program
from gopt.rewriting import Matcher, Terms, terms_of_program
from gopt.rewriting.ir.digests import digest
from gopt.rewriting.ir.operators import Literal


def program(fn, *shapes, terms=None, constant=False):
    terms = Terms() if terms is None else terms
    args = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    return terms, terms_of_program(terms, trace_program(fn, *args), [constant] * len(args))


F32 = jnp.float32


def test_equal_programs_have_one_digest_whatever_was_made_before():
    def model(x, y):
        return jnp.sort(x @ y) + jnp.arange(3.0)

    shapes = ((3, 3), F32), ((3, 3), F32)
    terms = Terms()
    program(lambda x, y: (jnp.tanh(y), jnp.sort(y @ x)), *shapes, terms=terms)
    first, second = program(model, *shapes), program(model, *shapes, terms=terms)
    assert first[1] != second[1]
    assert digest(*first) == digest(*second)
    assert len(digest(*first)) == 64


def test_different_programs_have_different_digests():
    square, large = ((3, 3), F32), ((4, 4), F32)
    large_number = np.arange(5000.0, dtype=np.float32)  # is not printed in full
    other = large_number.copy()
    other[2500] = 0
    every = [
        program(lambda x, y: x @ y, square, square),
        program(lambda x, y: y @ x, square, square),
        program(lambda x, y: x @ y, large, large),
        program(lambda x, y: x @ y, ((3, 3), jnp.bfloat16), ((3, 3), jnp.bfloat16)),
        program(lambda x, y: x @ y, square, square, constant=True),
        program(lambda x, y: (x @ y, x), square, square),
        program(lambda x, y: (x, x @ y), square, square),
        program(lambda x, y: x + y, square, square),
        program(lambda x: jnp.cumsum(x, 0), square),
        program(lambda x: jnp.cumsum(x, 1), square),
        program(lambda x: x + 1, square),
        program(lambda x: x + 2, square),
        program(lambda x: x + np.arange(3, dtype=np.float32), square),
        program(lambda x: x[:, :2], square),
        program(lambda x: x[:, 1:], square),
        program(lambda x: jax.lax.top_k(x, 2)[0], square),
        program(lambda x: jax.lax.top_k(x, 2)[1], square),
    ]
    assert len({digest(*each) for each in every}) == len(every)
    terms = Terms()
    numbers = [terms.add("number", value=Literal(value)) for value in (large_number, other)]
    assert digest(terms, numbers[:1]) != digest(terms, numbers[1:])


def test_functions_among_parameters_do_not_count_by_their_address():
    def model(x):
        return jax.lax.reduce(x, np.float32(0), lambda a, b: a * b + a, (0,))

    first, second = (program(model, ((6,), F32)) for _ in range(2))
    assert digest(*first) == digest(*second)


def test_rewritten_programs_have_other_digests():
    terms, roots = program(lambda x, y: (x @ y) @ y, ((3, 3), F32), ((3, 3), F32))
    matcher = Matcher(terms)
    after = {matcher.apply(roots, match) for match in matcher.matches(roots)} - {None}
    assert after and len({digest(terms, each) for each in (roots, *after)}) == 1 + len(after)
