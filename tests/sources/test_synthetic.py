"""Random graphs: what each family promises, counted."""

import dataclasses

import numpy as np
import pytest

from gopt.cost.hardware import ideal, op_seconds
from gopt.graph import graph as graphs
from gopt.sources import synthetic
from gopt.sources.synthetic import FAMILIES, Costs

family = pytest.mark.parametrize("name", FAMILIES)


def edges(graph):
    """Pairs of interior nodes, `[edges, 2]`, numbered from 0."""
    pairs = np.stack([graph.producer[graph.tensor], graph.consumer], 1)
    interior = (pairs[:, 0] > 0) & (pairs[:, 1] < int(graph.num_ops) - 1)
    return pairs[interior] - 1


@family
@pytest.mark.parametrize("num_ops", (7, 8, 50, 300))
def test_every_graph_is_valid_with_one_source_and_one_sink(name, num_ops):
    graph = FAMILIES[name](0, num_ops)
    graphs.check(graph)
    assert graph.num_ops == graph.num_tensors == num_ops
    read, written = np.unique(graph.tensor), np.unique(graph.consumer)
    assert np.setdiff1d(np.arange(num_ops), written).tolist() == [0]  # all but the source read
    assert np.setdiff1d(np.arange(num_ops), read).tolist() == [num_ops - 1]  # and but the sink
    assert np.flatnonzero(graphs.is_input(graph)).tolist() == [0]
    assert np.flatnonzero(graph.pinned).tolist() == [0, num_ops - 1]


@family
def test_source_and_sink_join_only_what_needs_them(name):
    graph = FAMILIES[name](1, 100)
    inner = edges(graph)
    fed = graph.consumer[graph.tensor == 0]
    assert sorted(fed) == sorted(np.setdiff1d(np.arange(98), inner[:, 1]) + 1)
    drained = graph.tensor[graph.consumer == 99]
    assert sorted(drained) == sorted(np.setdiff1d(np.arange(98), inner[:, 0]) + 1)


@family
def test_a_seed_decides_the_graph(name):
    def same(a, b):
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    one, again, other = FAMILIES[name](3, 60), FAMILIES[name](3, 60), FAMILIES[name](4, 60)
    assert same(one, again)
    assert not same(one, other)
    rng = np.random.default_rng(3)
    assert same(FAMILIES[name](rng, 60), one)
    assert not same(FAMILIES[name](rng, 60), one)  # the generator has advanced


@family
def test_sizes_and_times_are_about_50(name):
    graph = FAMILIES[name](0, 2000)
    seconds = op_seconds(graph.flops, graph.bytes, ideal(1))[1:, 0]
    assert graph.flops[0] == 0
    for values in (graph.size, seconds):
        assert abs(values.mean() - 50) < 1
        assert abs(values.std() - 10) < 1
        assert (values == np.rint(values)).all() and values.min() >= 1


@pytest.mark.slow
@family
def test_large_graphs_take_no_square_of_memory(name):
    graph = FAMILIES[name](0, 100_000)  # a bit for each pair of ops would be 1.2 GB
    assert 100_000 < graph.num_uses < 2_000_000


def test_costs_are_settings():
    costs = Costs(flops=1e9, size=1e6, spread=0.0)
    graph = synthetic.erdos_renyi(0, 30, costs=costs)
    assert (graph.size == 1e6).all()
    assert (graph.flops[1:] == 1e9).all()


@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "layered"])
def test_orientation_is_random(name):
    """Where an op is in the order says nothing of its degree, even for the oldest nodes."""
    first = []
    for seed in range(30):
        degree = np.bincount(edges(FAMILIES[name](seed, 202)).ravel(), minlength=200)
        first.append(degree[:100].sum() / degree.sum())
    assert abs(np.mean(first) - 0.5) < 0.02


def test_erdos_renyi_has_the_edges_that_its_density_says():
    n = 500
    counts = [len(edges(synthetic.erdos_renyi(seed, n + 2))) for seed in range(20)]
    expected = 1.5 * np.log(n) / n * n * (n - 1) / 2
    assert abs(np.mean(counts) / expected - 1) < 0.02
    assert np.std(counts) > 0


@pytest.mark.parametrize("density, count", ((0.0, 0), (1.0, 30 * 29 // 2)))
def test_erdos_renyi_reaches_both_ends(density, count):
    assert len(edges(synthetic.erdos_renyi(0, 32, density=density))) == count


def test_every_pair_is_drawn_equally_often():
    n, draws = 9, 3000
    count = np.zeros((n, n))
    rng = np.random.default_rng(0)
    for _ in range(draws):
        u, v = synthetic._triangle(rng, n, 0.3).T
        assert (u < v).all() and (u >= 0).all()
        count[u, v] += 1
    frequency = count[np.triu_indices(n, 1)] / draws
    assert np.abs(frequency - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / draws)


def test_blocks_are_dense_inside():
    full = edges(synthetic.stochastic_block(0, 42, blocks=4, inside=1.0, between=0.0))
    assert len(full) == 4 * (10 * 9 // 2)
    across = edges(synthetic.stochastic_block(0, 42, blocks=4, inside=0.0, between=1.0))
    assert len(across) == 6 * 10 * 10
    assert len(edges(synthetic.stochastic_block(0, 42, inside=1.0, between=1.0))) == 40 * 39 // 2


def test_watts_strogatz_moves_edges_and_keeps_their_number():
    for rewiring in (0.0, 0.3, 1.0):
        found = edges(synthetic.watts_strogatz(0, 102, neighbours=6, rewiring=rewiring))
        assert len(found) == 300
        degree = np.bincount(found.ravel(), minlength=100)
        assert (np.ptp(degree) == 0) == (rewiring == 0)


def test_barabasi_albert_has_hubs():
    found = edges(synthetic.barabasi_albert(0, 2002, links=3))
    assert len(found) == 3 * (2000 - 3)
    degree = np.bincount(found.ravel(), minlength=2000)
    random = np.bincount(edges(synthetic.erdos_renyi(0, 2002, density=0.003)).ravel())
    assert degree.max() > 4 * random.max()


def test_layers_read_the_one_before():
    graph = synthetic.layered(0, 102, layers=10, reads=3, skip=0.0)
    layer = edges(graph) // 10
    assert (layer[:, 1] - layer[:, 0] == 1).all()
    assert np.unique(edges(graph)[:, 1]).size == 90
    assert np.bincount(edges(graph)[:, 1]).max() == 3
    skipping = edges(synthetic.layered(0, 102, layers=10, reads=3, skip=1.0)) // 10
    assert (skipping[:, 1] > skipping[:, 0]).all()
    assert (skipping[:, 1] - skipping[:, 0]).max() > 3


@pytest.mark.parametrize(
    "make, message",
    (
        (lambda: synthetic.erdos_renyi(0, 2), "num_ops is 2"),
        (lambda: synthetic.erdos_renyi(0, 9, density=1.5), "density is 1.5"),
        (lambda: synthetic.stochastic_block(0, 9, blocks=0), "blocks is 0"),
        (lambda: synthetic.stochastic_block(0, 9, blocks=8), "blocks is 8"),
        (lambda: synthetic.stochastic_block(0, 9, inside=-1), "inside is -1"),
        (lambda: synthetic.stochastic_block(0, 9, between=2), "between is 2"),
        (lambda: synthetic.watts_strogatz(0, 9, neighbours=3), "neighbours is 3"),
        (lambda: synthetic.watts_strogatz(0, 9, neighbours=8), "neighbours is 8"),
        (lambda: synthetic.watts_strogatz(0, 9, rewiring=2), "rewiring is 2"),
        (lambda: synthetic.barabasi_albert(0, 9, links=0), "links is 0"),
        (lambda: synthetic.barabasi_albert(0, 9, links=7), "links is 7"),
        (lambda: synthetic.layered(0, 9, layers=8), "layers is 8"),
        (lambda: synthetic.layered(0, 9, reads=0), "reads is 0"),
        (lambda: synthetic.layered(0, 9, skip=-0.5), "skip is -0.5"),
    ),
)
def test_what_is_not_valid_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Costs)])
def test_bad_costs_are_named(field):
    with pytest.raises(ValueError, match=rf"costs\.{field} is -1"):
        synthetic.erdos_renyi(0, 9, costs=Costs(**{field: -1.0}))
