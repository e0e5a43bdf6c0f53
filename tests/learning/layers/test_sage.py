"""GraphSAGE against a plain reference; what it hears, and from where."""

from functools import cache

import jax
import numpy as np
import pytest

from gopt.graph import padding
from gopt.graph.graph import Shape
from gopt.learning.graphs import GraphsTuple, to_graphs_tuple
from gopt.learning.layers.sage import GraphSAGE, max_round
from tests.learning.test_graphs import cases, with_random_padding
from tests.reference import sage as reference
from tests.strategies import HUBS, NASTY

WIDTH = 12
SHAPE, WIDE = Shape(24, 24, 64), Shape(40, 31, 97)
SMALL = [*NASTY, "random 19", "random 20", "random 23"]


@cache
def network(rounds: int):
    """A jitted network and random weights for it."""
    net = GraphSAGE(WIDTH, rounds)
    params = net.init(jax.random.key(0), padded("chain"))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(scale=0.4, size=x.shape).astype(np.float32), params)
    return jax.jit(net.apply), params


def padded(name: str, shape: Shape | None = SHAPE) -> GraphsTuple:
    return to_graphs_tuple(padding.pad(cases()[name], shape))


def embeddings(graph: GraphsTuple, rounds: int = 3) -> np.ndarray:
    apply, params = network(rounds)
    found = np.asarray(apply(params, graph))
    assert np.isfinite(found).all()
    return found


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", SMALL)
def test_embeddings_equal_the_reference(name, rounds):
    graph = padded(name)
    expected = reference.sage(network(rounds)[1], graph, rounds)
    found = embeddings(graph, rounds)[: len(expected)]
    assert found.std() > 0.1
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("name", HUBS)
def test_a_thousand_neighbours_are_averaged(name):
    graph = padded(name, None)
    expected = reference.sage(network(1)[1], graph, 1)
    np.testing.assert_allclose(embeddings(graph, 1)[: len(expected)], expected, atol=2e-4)


@pytest.mark.parametrize("name", SMALL)
def test_embeddings_do_not_depend_on_padding_or_what_it_holds(name):
    graph, wide = padded(name), padded(name, WIDE)
    n, expected = int(graph.n_node[0]), embeddings(graph)
    np.testing.assert_allclose(embeddings(wide)[:n], expected[:n], atol=1e-4)
    found = embeddings(with_random_padding(graph))
    np.testing.assert_allclose(found[:n], expected[:n], atol=1e-4)
    assert np.abs(found[n:] - expected[n:]).max() > 1e-2  # the test would notice


def test_the_order_of_uses_does_not_matter_but_their_ends_do():
    graph = padded("random 19")
    n, e = int(graph.n_node[0]), int(graph.n_edge[0])
    assert e > 10
    order = np.append(np.random.default_rng(0).permutation(e), np.arange(e, 64))
    fields = {"edges": graph.edges, "senders": graph.senders, "receivers": graph.receivers}
    shuffled = graph._replace(**{name: rows[order] for name, rows in fields.items()})
    expected = embeddings(graph)[:n]
    np.testing.assert_allclose(embeddings(shuffled)[:n], expected, atol=1e-4)
    turned = graph._replace(senders=graph.receivers, receivers=graph.senders)
    assert np.abs(embeddings(turned)[:n] - expected).max() > 1e-2


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_op_sees_as_far_as_there_are_rounds(rounds):
    graph = padded("chain")
    other = jax.tree.map(np.copy, graph)
    other.nodes["features"][10] += 3.0
    change = np.abs(embeddings(other, rounds) - embeddings(graph, rounds)).max(1)
    assert set(np.flatnonzero(change)) == set(range(10 - rounds, 10 + rounds + 1))


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", SMALL)
def test_the_largest_of_neighbours_equals_the_reference(name, rounds):
    graph, wide = padded(name), padded(name, WIDE)
    net = GraphSAGE(WIDTH, rounds, max_round)
    params = net.init(jax.random.key(0), graph)
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(scale=0.4, size=x.shape).astype(np.float32), params)
    expected = reference.max_sage(params, graph, rounds)
    assert expected.std() > 0.1
    for case in (graph, wide):
        found = np.asarray(net.apply(params, case))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[: len(expected)], expected, atol=2e-4)
