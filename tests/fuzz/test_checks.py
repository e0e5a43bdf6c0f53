"""The checks of random programs find faults, and programs are the same each time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fuzz.checks import Reference
from tests.fuzz.programs import RandomProgram, random_program


def function(x, y):
    return {"sum": x + y, "scalar": 2.0, "whole": jnp.arange(3), "bits": x > 0}


X = jnp.linspace(-1, 1, 5)
ARGS = X, X * 2
PROGRAM = RandomProgram("test", jax.jit(function, donate_argnums=0), ARGS, ARGS, (0,), {})


def changed(**new):
    """The function with other results."""
    return jax.jit(lambda x, y: function(x, y) | new, donate_argnums=0)


def test_the_function_itself_has_no_fault():
    reference = Reference(PROGRAM)
    reference.check("itself", changed())
    reference.check_inside("itself", function)
    assert reference.donated == reference.deleted == [True, False]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (jax.jit(function), r"deleted \[False, False\], expected \[True, False\]"),
        (jax.jit(function, donate_argnums=1), r"deleted \[False, True\]"),
        (function, "result 1 is a <class 'float'>"),
        (lambda x, y: list(function(x, y).values()), "structure"),
        (changed(sum=X), "result 2 differs"),
        (changed(sum=X * np.nan), "result 2 differs"),
        (changed(scalar=np.float32(2)), "result 1 is"),
        (changed(whole=jnp.arange(1, 4)), "result 3 differs"),
        (changed(whole=jnp.arange(3.0)), "result 3 is"),
        (changed(bits=~(X > 0)), "result 0 differs"),
        (lambda x, y: jax.device_put(changed()(x, y), jax.devices()[1]), "result 0 is on"),
    ],
)
def test_faults_are_found(wrong, message):
    with pytest.raises(AssertionError, match=message):
        Reference(PROGRAM).check("wrong", wrong)


def test_a_wrong_gradient_is_found():
    @jax.custom_jvp
    def wrong(x, y):
        return function(x, y)

    @wrong.defjvp
    def _(primals, tangents):
        values, tangents = jax.jvp(function, primals, tangents)
        return values, tangents | {"sum": 2 * tangents["sum"]}

    with pytest.raises(AssertionError, match="gradient differs"):
        Reference(PROGRAM).check_inside("wrong", wrong)


def test_a_comparison_of_nearly_equal_numbers_may_have_either_value():
    args = (jnp.float32([0.1, 0.2, 0.3]),)

    def check(threshold):
        program = RandomProgram("test", lambda x: jnp.sum(x) > threshold, args, args, (), {})
        Reference(program).check("other", jax.jit(lambda x: ~(jnp.sum(x) > threshold)))

    check(float(jnp.sum(*args)))
    with pytest.raises(AssertionError, match="result 0 differs"):
        check(0.5)


def test_programs_are_the_same_each_time():
    for number in range(20):
        first, second = (random_program(3, number) for _ in range(2))
        assert str(first) == str(second) and first.name == f"program {number} of seed 3"
    assert str(random_program(4, 0)) != str(random_program(3, 0))
