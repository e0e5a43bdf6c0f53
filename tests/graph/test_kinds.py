import jax
import jax.numpy as jnp

from gopt.graph.kinds import INPUT, KINDS, UNKNOWN, kind_index


def test_names_are_unique():
    assert len(set(KINDS)) == len(KINDS)


def test_names_are_those_of_primitives():
    assert all(name == name.lower() and name.replace("_", "a").isalnum() for name in KINDS)


def test_every_name_has_its_index():
    assert [kind_index(name) for name in KINDS] == list(range(len(KINDS)))
    assert KINDS[INPUT] == "input"


def test_other_names_are_unknown():
    assert KINDS[UNKNOWN] == "unknown"
    for name in ("", "no_such_op", "ADD", "dot_general "):
        assert kind_index(name) == UNKNOWN


def test_hyphens_are_underscores():
    for name in ("dynamic-update-slice", "custom-call", "scatter-add", "dot-general"):
        assert kind_index(name) == kind_index(name.replace("-", "_")) != UNKNOWN


def test_positions_do_not_change():
    # Trained weights depend on them: names may only be added at the end.
    positions = {"dot_general": 3, "add": 6, "exp": 33, "reduce_sum": 70, "reshape": 90, "svd": 131}
    assert {name: kind_index(name) for name in positions} == positions


def test_primitives_of_a_program_have_kinds():
    def fn(x):
        return jax.nn.softmax(jnp.exp(x @ x.T)).sum()

    jaxpr = jax.make_jaxpr(jax.grad(fn))(jnp.ones((3, 4)))
    names = {str(equation.primitive) for equation in jaxpr.eqns}
    calls = {"jit", "pjit", "custom_jvp_call"}
    assert len(names - calls) > 5
    assert all(kind_index(name) != UNKNOWN for name in names - calls), names
