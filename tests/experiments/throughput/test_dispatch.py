"""Priority dispatch in the throughput experiment: its peer agrees with gopt, and it runs."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.problem import prepare
from gopt.search.population import uniforms
from gopt.sources import synthetic
from tests import strategies
from tests.reference import dispatch as reference
from tests.strategies import CHANNELS, HUBS, LARGE, NASTY, SMALL, WIDE, Case

pytest.importorskip("numba")

from experiments.throughput.dispatch import compare
from experiments.throughput.graphs import GRAPHS
from experiments.throughput.peers import dispatching

pytestmark = pytest.mark.slow

DEVICES = (1, 3)  # the simulator is compiled for each number of them
evaluate = jax.jit(lambda problem, keys: dispatch.evaluate(problem, keys))


def placement(keys: Keys) -> Keys:
    return Keys(keys.device, None, None)


def check(case: Case, shape: strategies.Shape, expect) -> None:
    """`expect(problem, keys)` returns the makespan and the peaks of one candidate."""
    problem, keys = case.problem(shape), case.padded_keys(shape)
    for candidate in (keys, placement(keys)):
        makespan, peak = expect(problem, candidate)
        population = jax.tree.map(lambda leaf: np.stack([leaf] * 3), candidate)
        found = dispatching.evaluate(dispatching.tables(problem), population)
        np.testing.assert_array_equal(found.makespan, [makespan] * 3)
        np.testing.assert_array_equal(found.peak, [peak] * 3)


def by_reference(problem, keys):
    expected = reference.run(problem, keys)
    return expected.makespan, expected.peak


@pytest.mark.parametrize("devices", DEVICES)
def test_the_simulator_agrees_with_the_reference(devices):
    @settings(max_examples=60, deadline=None)
    @given(strategies.cases(devices))
    def agrees(case: Case) -> None:
        check(case, WIDE, by_reference)

    agrees()


@pytest.mark.parametrize("synchronous", (False, True))
@pytest.mark.parametrize("channel", CHANNELS)
def test_as_many_devices_as_bits_of_a_word(channel, synchronous):
    rng = np.random.default_rng(0)
    for _ in range(5):
        graph = strategies.random_graph(rng, 23, 0.4)
        case = strategies.random_case(
            rng, graph, 64, channel=channel, synchronous=synchronous, allowed=0.6
        )
        check(case, SMALL, by_reference)


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs(name, devices):
    rng = np.random.default_rng(0)
    for kind in strategies.KEYS:
        for synchronous in (False, True):
            case = strategies.random_case(
                rng, NASTY[name](), devices, keys=kind, synchronous=synchronous
            )
            check(case, SMALL, by_reference)


@pytest.mark.parametrize("kind", strategies.KEYS)
@pytest.mark.parametrize("name", HUBS)
def test_hubs(name, kind):
    rng = np.random.default_rng(0)
    for synchronous in (False, True):
        case = strategies.random_case(rng, HUBS[name](), 3, keys=kind, synchronous=synchronous)
        check(case, LARGE, evaluate)


@pytest.mark.parametrize("ops", (300, 5000))
def test_populations(ops):
    problem = prepare(synthetic.barabasi_albert(0, ops), unit_rate_devices(3))
    keys = jax.device_get(uniforms(jax.random.key(0), keys_shape(problem), 13))
    for population in (keys._replace(transfer=None), placement(keys)):
        expected = jax.vmap(evaluate, (None, 0))(problem, population)
        found = dispatching.evaluate(dispatching.tables(problem), population)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_more_devices_are_an_error():
    problem = prepare(synthetic.layered(0, 20), unit_rate_devices(65))
    keys = Keys(np.zeros((1, 21, 65), np.float32), None, None)
    with pytest.raises(ValueError, match=r"keys\.device has 65 devices: expected 64 at most"):
        dispatching.evaluate(dispatching.tables(problem), keys)


# The experiment.


def test_a_difference_is_reported(monkeypatch):
    def wrong(tables, keys):
        return dispatch.Cost(np.zeros(3, np.int32), np.ones((3, 3), np.int32))

    monkeypatch.setattr(dispatching, "evaluate", wrong)
    monkeypatch.setitem(GRAPHS, "layered", partial(synthetic.layered, 0, 40))
    with pytest.raises(RuntimeError, match="layered, by priority: the costs differ"):
        compare("layered", 3, population=3, rounds=1, seed=0)
