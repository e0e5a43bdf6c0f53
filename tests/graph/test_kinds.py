import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import h100s
from gopt.cost.schedule.problem import prepare
from gopt.graph.kinds import INPUT, KINDS, UNKNOWN, kind_index
from gopt.graph.padding import pad
from gopt.graph.tracing import trace


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


def test_kinds_of_trained_weights_are_as_before():
    # Primitives with a new cost keep their kind: names outside the vocabulary stay unknown.
    for name in (
        "ragged_dot_general",
        "scaled_dot",
        "scaled_matmul_wrapper",
        "householder_product",
    ):
        assert kind_index(name) == UNKNOWN
    assert len(KINDS) == 138


def test_costs_of_unknown_kinds_are_used():
    def fn(x, scales):
        q, r = jnp.linalg.qr(jnp.fft.fft(x).real)
        return q @ r + jax.nn.scaled_matmul(x[None], x[None], scales, scales)[0], jnp.linalg.svd(x)

    arguments = jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((1, 64, 2), "f4")
    graph = pad(trace(fn, *arguments).graph)
    problem = prepare(graph, h100s(1))
    assert problem.num_ops == graph.num_ops
    fusion = prepare_fusion(graph, h100s(1), rules=RULES["gpu"])
    for tree in (problem, fusion):
        assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))
