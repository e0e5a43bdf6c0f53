from functools import cache

import jax
import numpy as np
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Op, Output, Shape
from gopt.graph.kinds import KINDS
from gopt.heuristics.schedule.placement.spectral import op_coordinates, sides, spectral_coordinates
from gopt.learning.graphs import OP_FEATURES, SPECTRAL, GraphsTuple, Guide, to_graphs_tuple
from gopt.learning.layers.graph import op_mask
from gopt.learning.layers.message_passing import MessagePassing
from tests.reference import features as reference
from tests.strategies import HUBS, NASTY, SIZES, random_graph

PLACES = [i for i, name in enumerate(OP_FEATURES) if name.startswith("spectral")]
SIDES = [OP_FEATURES.index(f"side_{axis}") for axis in "xy"]
PLAIN = [i for i in range(len(OP_FEATURES)) if i not in PLACES + SIDES]


def dressed(rng: np.random.Generator, graph: Graph) -> Graph:
    """The graph with random kinds, costs, workspaces and shapes as well."""
    n, t = int(graph.num_ops), int(graph.num_tensors)
    shape = rng.integers(0, 9, (t, graphs.MAX_RANK))
    rank = rng.integers(0, graphs.MAX_RANK + 1, t)
    return graph._replace(
        kind=np.where(graph.kind > 0, graph.kind, rng.integers(2, len(KINDS), n)).astype(np.int32),
        flops=rng.integers(0, 2**40, n) * rng.integers(0, 2, n).astype(np.float64),
        bytes=rng.integers(0, 2**30, n).astype(np.float64),
        workspace=rng.integers(0, 50, n).astype(np.float64),
        shape=np.where(np.arange(graphs.MAX_RANK) < rank[:, None], shape, -1).astype(np.int32),
        rank=rank.astype(np.int32),
    )


def components(count: int, ops: int) -> Graph:
    """Chains that have nothing to do with one another."""
    return graphs.from_ops(
        [
            Op(inputs=((i - 1, 0),) if i % ops else (), outputs=(Output(3 + i % 7),))
            for i in range(count * ops)
        ]
    )


def clusters(rng: np.random.Generator, ops: int) -> tuple[Graph, np.ndarray]:
    """Two dense halves with one use between them, interleaved in program order; and the halves."""
    half = rng.permutation(np.repeat([0, 1], ops // 2))
    members = [np.flatnonzero(half == h) for h in (0, 1)]
    inputs: list[list[tuple[int, int]]] = [[] for _ in half]
    for member in members:
        for k, i in enumerate(member):
            inputs[i] += [(int(j), 0) for j in member[:k] if rng.random() < 0.7]
            if k and not inputs[i]:
                inputs[i].append((int(member[k - 1]), 0))
    first = min(members, key=lambda m: m[0])
    other = members[0] if first is members[1] else members[1]
    inputs[other[-1]].append((int(first[ops // 4]), 0))
    made = [Op(inputs=tuple(pairs), outputs=(Output(100),)) for pairs in inputs]
    return graphs.from_ops(made), half


@cache
def cases() -> dict[str, Graph]:
    rng = np.random.default_rng(0)
    found = {name: make() for name, make in {**NASTY, **HUBS}.items()}
    found |= {"components": components(5, 4), "pairs": components(10, 2), "five": components(1, 5)}
    for index in range(24):
        sizes = list(SIZES)[index % len(SIZES)]
        density = (0.0, 0.05, 0.15, 0.4, 1.0)[index % 5]
        graph = random_graph(rng, 1 + 22 * index // 23, density, sizes)
        found[f"random {index}"] = dressed(rng, graph)
    return found


def wider(graph: Graph) -> Shape:
    return Shape(*(np.add(padding.bucket(graph), (5, 9, 70)).tolist()))


def rows(graph: Graph, shape: Shape | None = None) -> np.ndarray:
    return to_graphs_tuple(padding.pad(graph, shape)).nodes["features"][: int(graph.num_ops)]


@pytest.mark.parametrize("name", cases())
def test_features_equal_the_reference(name):
    graph = cases()[name]
    got = to_graphs_tuple(padding.pad(graph))
    expected = reference.op_features(graph)
    assert {*expected} == {OP_FEATURES[i] for i in PLAIN}
    for i in PLAIN:
        np.testing.assert_allclose(
            got.nodes["features"][: int(graph.num_ops), i],
            expected[OP_FEATURES[i]],
            rtol=1e-5,
            atol=1e-6,
            err_msg=OP_FEATURES[i],
        )
    e = int(graph.num_uses)
    uses = np.array(reference.use_features(graph)).reshape(-1, 2)
    np.testing.assert_allclose(got.edges[:e], uses, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got.senders[:e], graph.producer[graph.tensor])
    np.testing.assert_array_equal(got.receivers[:e], graph.consumer)
    np.testing.assert_array_equal(got.nodes["kind"][: int(graph.num_ops)], graph.kind)


def guided(name: str) -> tuple[list[int], np.ndarray]:
    """A random order of the ops of a case that are no inputs, and random devices, of three."""
    rng = np.random.default_rng(len(name))
    graph = cases()[name]
    n = int(graph.num_ops)
    key = rng.random(n)
    for tensor, consumer in zip(graph.tensor, graph.consumer, strict=True):
        key[consumer] = max(key[consumer], key[graph.producer[tensor]])
    given = np.asarray(graphs.is_input(graph))
    order = [int(op) for op in np.lexsort((np.arange(n), key)) if not given[op]]
    return order, rng.integers(0, 3, n)


@pytest.mark.parametrize("name", cases())
def test_features_along_a_guide_equal_the_reference(name):
    graph, (order, device) = cases()[name], guided(name)
    n = int(graph.num_ops)
    padded = padding.pad(graph)
    device = np.append(device, np.zeros(graphs.shape_of(padded).ops - n, int))
    guide = Guide(np.array(order, np.int64), sides(device, 3))
    got = to_graphs_tuple(padded, guide).nodes["features"]
    expected = reference.op_features(graph, order)
    expected["side_x"] = [(1, -0.5, -0.5)[d] for d in device[:n]]
    expected["side_y"] = [(0, 0.75**0.5, -(0.75**0.5))[d] for d in device[:n]]
    for i in PLAIN + SIDES:
        np.testing.assert_allclose(
            got[:n, i], expected[OP_FEATURES[i]], rtol=1e-5, atol=1e-6, err_msg=OP_FEATURES[i]
        )
    assert not got[n:].any()


def test_the_cases_vary_every_feature():
    every = np.concatenate([rows(graph) for graph in cases().values()])
    assert every.shape[1] == len(OP_FEATURES) == len(set(OP_FEATURES))
    assert all(len(np.unique(column)) > 1 for column in every.T)
    # A guide that does not say where ops belong takes the spectral places.
    np.testing.assert_array_equal(every[:, SIDES], every[:, PLACES[:2]])


@pytest.mark.parametrize("name", cases())
def test_features_are_finite_and_do_not_depend_on_padding(name):
    graph = cases()[name]
    tight = Shape(*(int(count) + 1 for count in graph[-3:]))
    expected = rows(graph)
    for shape in (None, tight, wider(graph)):
        padded = padding.pad(graph, shape)
        got = to_graphs_tuple(padded)
        n, e = int(graph.num_ops), int(graph.num_uses)
        size = graphs.shape_of(padded)
        np.testing.assert_array_equal(got.nodes["features"][:n], expected)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(got))
        assert not got.nodes["features"][n:].any() and not got.edges[e:].any()
        # Padding edges join padding rows only.
        assert (got.senders[e:] >= n).all() and (got.receivers[e:] >= n).all()
        assert got.n_node.tolist() == [n, size.ops - n]
        assert got.n_edge.tolist() == [e, size.uses - e]
        assert len(got.nodes["kind"]) == size.ops and len(got.edges) == size.uses
        np.testing.assert_array_equal(op_mask(got), np.arange(size.ops) < n)
    places = expected[:, PLACES]
    assert (np.abs(places) <= 1 + 1e-6).all()


def test_a_graph_without_padding_gets_one_row():
    graph = components(2, 3)
    got, padded = to_graphs_tuple(graph), to_graphs_tuple(padding.pad(graph, Shape(7, 7, 5)))
    jax.tree.map(np.testing.assert_array_equal, got, padded)
    assert int(op_mask(got).sum()) == 6


@pytest.mark.parametrize("name", cases())
def test_features_do_not_depend_on_units(name):
    graph = cases()[name]
    if name.startswith("random"):  # a mean size of one byte or more: see the next test
        graph = graph._replace(size=graph.size + 1)
    scaled = graph._replace(
        **{f: getattr(graph, f) * 1024 for f in ("size", "flops", "bytes", "workspace")}
    )
    whole = graph.size.sum() >= max(1, graph.size.size)
    keep = [i for i, feature in enumerate(OP_FEATURES) if feature != "workspace" or whole]
    np.testing.assert_allclose(rows(scaled)[:, keep], rows(graph)[:, keep], atol=1e-5)


def test_workspace_is_relative_to_a_byte_where_there_are_no_sizes():
    graph = graphs.from_ops([Op(workspace=7), Op(workspace=0)])
    column = rows(graph)[:, OP_FEATURES.index("workspace")]
    np.testing.assert_allclose(column, [np.log(8), 0], rtol=1e-6)


def test_features_are_deterministic():
    for graph in cases().values():
        np.testing.assert_array_equal(rows(graph), rows(graph))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ops", [12, 40])
def test_the_first_spectral_place_separates_two_clusters(seed, ops):
    graph, half = clusters(np.random.default_rng(seed), ops)
    place = rows(graph)[:, PLACES[0]]
    order = np.argsort(place)
    assert len({*half[order[: ops // 2]]}) == 1
    # Places are shares of the bytes made: evenly spread where all ops make as much.
    np.testing.assert_allclose(place[order], 2 * np.arange(1, ops + 1) / ops - 1, atol=1e-5)


def test_spectral_places_of_a_chain_are_its_order():
    place = rows(components(1, 30))[:, PLACES[0]]
    step = np.sign(np.diff(place))
    assert (step == step[0]).all()
    assert len(PLACES) == SPECTRAL


@pytest.mark.parametrize("first", [3, 10, 30])
def test_parts_without_a_use_in_common_stay_whole(first):
    """Two unequal chains: a cut anywhere along the first place severs at most one use."""
    ops = [
        Op(inputs=((i - 1, 0),) if i not in (0, first) else (), outputs=(Output(5),))
        for i in range(100)
    ]
    place = rows(graphs.from_ops(ops))[:, PLACES[0]]
    uses = [(i - 1, i) for i in range(100) if i not in (0, first)]
    for cut in np.linspace(-0.9, 0.9, 19):
        side = place > cut
        assert sum(side[i] != side[j] for i, j in uses) <= 1


def test_spectral_places_follow_bytes():
    """An op that makes most of the bytes takes most of the interval."""
    sizes = [1, 1, 1, 994, 1, 1, 1]
    ops = [
        Op(inputs=((i - 1, 0),) if i else (), outputs=(Output(size),))
        for i, size in enumerate(sizes)
    ]
    place = np.sort(rows(graphs.from_ops(ops))[:, PLACES[0]])
    assert np.diff(place, prepend=-1).max() == pytest.approx(2 * 0.994, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_places_are_of_uses_tied_by_the_logarithm_of_their_sizes(seed):
    graph, _ = clusters(np.random.default_rng(seed), 40)
    uses = slice(int(graph.num_uses))
    tensor, reader = graph.tensor[uses], graph.consumer[uses]
    size = np.asarray(graph.size[: int(graph.num_tensors)], np.float64)
    made = np.bincount(graph.producer[: len(size)], size, minlength=40)
    weight = np.log1p(size / size.mean())[tensor]
    expected = spectral_coordinates(graph.producer[tensor], reader, weight, made, SPECTRAL)
    np.testing.assert_allclose(rows(graph)[:40, PLACES], expected.T, atol=1e-6)
    found = op_coordinates(
        prepare(padding.pad(graph, Shape(50, 50, 500)), unit_rate_devices(2)), SPECTRAL
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_small_graphs_have_no_places():
    assert not rows(components(1, SPECTRAL + 1))[:, PLACES].any()
    assert rows(components(1, SPECTRAL + 2))[:, PLACES].any()


# Message passing.

WIDTH = 16


@cache
def network():
    """A jitted network and random weights for it."""
    net = MessagePassing(WIDTH, rounds=3)
    params = net.init(jax.random.key(0), to_graphs_tuple(padding.pad(cases()["chain"])))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(scale=0.4, size=x.shape).astype(np.float32), params)
    return jax.jit(net.apply), params


def embeddings(graph: GraphsTuple) -> np.ndarray:
    apply, params = network()
    return np.asarray(apply(params, graph))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one op", "no edges", "chain", "hub", "components", "random 19"])
def test_embeddings_do_not_depend_on_padding(name):
    graph = cases()[name]
    n = int(graph.num_ops)
    small, large = Shape(24, 24, 64), Shape(40, 31, 97)
    got = [embeddings(to_graphs_tuple(padding.pad(graph, shape)))[:n] for shape in (small, large)]
    assert got[0].shape == (n, WIDTH) and np.isfinite(got[0]).all()
    assert got[0].std() > 0.1
    assert n == 1 or got[0].std(0).max() > 1e-3
    scale = np.abs(got[0]).max()
    np.testing.assert_allclose(got[1] / scale, got[0] / scale, atol=1e-5)


def with_random_padding(graph: GraphsTuple) -> GraphsTuple:
    """Return a graph, padded to 24 ops and 64 uses, with random values in its padding."""
    n, e = int(graph.n_node[0]), int(graph.n_edge[0])
    rng = np.random.default_rng(0)
    other = jax.tree.map(np.copy, graph)
    other.nodes["features"][n:] = rng.normal(size=other.nodes["features"][n:].shape)
    other.edges[e:] = rng.normal(size=other.edges[e:].shape)
    other.senders[e:] = rng.integers(n, 24, 64 - e)
    other.receivers[e:] = rng.integers(n, 24, 64 - e)
    return other


@pytest.mark.slow
def test_embeddings_do_not_depend_on_what_padding_holds_or_its_order():
    padded = to_graphs_tuple(padding.pad(cases()["random 19"], Shape(24, 24, 64)))
    n = int(padded.n_node[0])
    assert padded.n_edge[0] > 10
    a, b = embeddings(padded), embeddings(with_random_padding(padded))
    np.testing.assert_allclose(b[:n], a[:n], rtol=1e-5, atol=1e-5)
    assert np.abs(a[n:] - b[n:]).max() > 1e-2  # the test would notice


@pytest.mark.slow
def test_the_order_of_uses_does_not_matter_but_their_ends_do():
    padded = to_graphs_tuple(padding.pad(cases()["random 19"], Shape(24, 24, 64)))
    e, n = int(padded.n_edge[0]), int(padded.n_node[0])
    order = np.append(np.random.default_rng(0).permutation(e), np.arange(e, 64))
    shuffled = padded._replace(
        edges=padded.edges[order],
        senders=padded.senders[order],
        receivers=padded.receivers[order],
    )
    a, b = embeddings(padded)[:n], embeddings(shuffled)[:n]
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    turned = padded._replace(senders=padded.receivers, receivers=padded.senders)
    assert np.abs(embeddings(turned)[:n] - a).max() > 1e-2


@pytest.mark.slow
def test_an_op_sees_as_far_as_there_are_rounds():
    padded = to_graphs_tuple(padding.pad(cases()["chain"], Shape(24, 24, 64)))
    other = jax.tree.map(np.copy, padded)
    other.nodes["features"][10] += 3.0
    change = np.abs(embeddings(other) - embeddings(padded)).max(1)
    assert set(np.flatnonzero(change)) == set(range(10 - 3, 10 + 3 + 1))
