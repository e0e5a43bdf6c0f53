"""One loop evaluates equations and terms, and frees each value after its last use."""

import jax.numpy as jnp
import numpy as np
import pytest

from gopt.program.equations import run_equation
from gopt.program.interpret import Step, interpret, operands_of, run_in_order
from gopt.program.program import trace_program

pytestmark = pytest.mark.small


def test_values_are_freed_after_their_last_use():
    live = []

    def step(reads, makes):
        def run(values):
            live.append(sorted(values))
            assert values.keys() >= set(reads)
            return [sum(values[key] for key in reads)] * len(makes)

        return Step(reads, makes, run)

    values = {"x": 1}
    steps = [step("x", "ab"), step("a", "c"), step("cc", "d"), step("cd", "e")]
    run_in_order([s._replace(reads=tuple(s.reads)) for s in steps], values, "ed")
    assert live == [["x"], ["a"], ["c"], ["c", "d"]]  # nothing reads b
    assert values == {"d": 2, "e": 3}


def test_an_evaluation_may_read_other_variables_and_replace_values():
    program = trace_program(lambda x: jnp.sin(jnp.cos(x)) + jnp.tanh(x), 1.0)
    cos, *rest = program.equations
    seen = []

    def evaluate(position, equation, values):
        seen.append(cos.outvars[0] in values)
        if position == 1:
            values[cos.outvars[0]] = 0.0
        return run_equation(equation, operands_of(equation, values))

    for also, expected in (
        ({}, [False, True, False, False]),
        ({3: cos.outvars}, [False, *[True] * 3]),
    ):
        seen.clear()
        found = interpret(program, (1.0,), evaluate, also_read=also)
        np.testing.assert_allclose(found, np.tanh(1.0), rtol=1e-6)
        assert seen == expected
    assert len(rest) == 3


def test_other_arguments_are_refused():
    program = trace_program(jnp.sin, np.ones(3))
    with pytest.raises(ValueError, match="args"):
        interpret(program, (np.ones(4),), lambda *_: [])
