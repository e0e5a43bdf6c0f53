"""Costs on lanes against the plain reference, bit for bit, the kernel emulated; and their place."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, PartitionSpec

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.decoding import Cost, Keys, keys_shape
from gopt.cost.schedule.execution import evaluate, makespan, peaks
from gopt.cost.schedule.gpu import population as gpu_population
from gopt.cost.schedule.gpu.population import costs
from gopt.cost.schedule.gpu.primitive import lane_costs
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Shape
from gopt.sources.synthetic import erdos_renyi
from tests import strategies
from tests.reference.execution import run
from tests.strategies import CHANNELS, KEYS, NASTY, SIZES, SMALL, TIMES

pytestmark = pytest.mark.slow

TINY = Shape(8, 12, 16)  # 32 items on two devices: the queue has one level
GRAPHS = 5
KINDS = [*KEYS, "uniform"]  # candidates of a graph; those of all do not fill two warps


# Compiled in little time.
emulated = jax.jit(
    partial(costs, interpret=True), compiler_options={"xla_backend_optimization_level": 0}
)


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def assert_matches(found, graphs, keys):
    """The costs `[G, P]` are those of the reference; keys are lists of lists of candidates."""
    assert found.makespan.dtype == found.peak.dtype == np.int32
    for g, problem in enumerate(graphs):
        for p, candidate in enumerate(keys[g]):
            expected = run(problem, candidate)
            assert int(found.makespan[g, p]) == expected.makespan, (g, p)
            assert found.peak[g, p].tolist() == expected.peak, (g, p)


def check(cases, rng, devices, shape=SMALL, kinds=KINDS):
    """Cases with random candidates, whose keys are random in rows of padding, too."""
    graphs = [case.problem(shape) for case in cases]
    keys = [[strategies.random_keys(rng, kind, shape, devices) for kind in kinds] for _ in graphs]
    found = emulated(problems.stack(graphs), stacked([stacked(row) for row in keys]))
    assert_matches(found, graphs, keys)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_random_problems_match_the_reference(devices):
    rng = np.random.default_rng(devices)
    for _ in range(5):
        cases = [
            strategies.random_case(
                rng,
                strategies.random_graph(
                    rng, int(rng.integers(1, SMALL.ops)), rng.choice([0.05, 0.3, 1.0]), sizes
                ),
                devices,
                channel=channel,
                synchronous=bool(rng.integers(2)),
                times=times,
                allowed=rng.choice([1.0, 0.6]),
            )
            for channel, sizes, times in zip(CHANNELS, SIZES, TIMES, strict=True)
        ]
        check(cases, rng, devices)


@pytest.mark.parametrize("channel", CHANNELS)
def test_nasty_graphs_match_the_reference(channel):
    rng = np.random.default_rng(0)
    cases = [
        strategies.random_case(
            rng, make(), 3, channel=channel, synchronous=synchronous, times=times
        )
        for synchronous, times in ((False, "whole"), (True, "whole"), (False, "zero"))
        for make in NASTY.values()
    ]
    for start in range(0, len(cases), GRAPHS):
        check(cases[start : start + GRAPHS], rng, 3)


@pytest.mark.slow
def test_a_queue_of_three_levels():
    rng = np.random.default_rng(0)
    large = prepare(erdos_renyi(0, 300), unit_rate_devices(3))
    assert large.shape.ops + 3 * large.shape.tensors > 32**2
    keys = [strategies.random_keys(rng, kind, large.shape, 3) for kind in ("uniform", "tied")]
    found = emulated(problems.stack([large]), stacked([stacked(keys)]))
    assert_matches(found, [large], [keys])


@pytest.mark.slow
def test_blocks_of_a_population_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    counts, devices = (4, 6), 2
    cases = [
        strategies.random_case(rng, strategies.random_graph(rng, count, 0.2), devices)
        for count in counts
    ]
    rows = []

    def block(problem, keys, **settings):
        rows.append(keys.priority.shape[1])
        return whole(problem, keys, **settings)

    whole = gpu_population._block
    monkeypatch.setattr(gpu_population, "_block", block)
    state = 5 * (TINY.ops + TINY.tensors * devices) + devices + devices**2
    monkeypatch.setattr(gpu_population, "_BLOCK", 3 * len(counts) * state)
    check(cases, rng, devices, TINY)
    assert rows == [3]  # 7 candidates in three blocks


def fake_costs(problem, keys):
    """What differs with every graph and candidate, in the place of costs."""
    return jax.vmap(jax.vmap(fake_cost, (None, 0)))(problem, keys)


def fake_cost(problem, keys):
    ticks = jnp.where(keys.device > 0.5, problem.op_ticks, 1)
    sent = jnp.sum(keys.transfer > 0.5, 0, dtype=jnp.int32)
    return Cost(jnp.sum(ticks, dtype=jnp.int32), problem.capacity + sent)


NESTS = {
    "graphs": (lambda f: jax.vmap(f, (0, None)), (4,), ()),
    "candidates of graphs": (lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None)), (4,), (3,)),
    "graphs of candidates": (lambda f: jax.vmap(jax.vmap(f, (0, None)), (None, 0)), (4,), (3,)),
    "each graph its own": (lambda f: jax.vmap(jax.vmap(f, (None, 0))), (4,), (4, 3)),
    "candidates twice": (lambda f: jax.vmap(jax.vmap(f, (None, 0)), (None, 1)), (), (3, 4)),
    "graphs twice": (lambda f: jax.vmap(jax.vmap(jax.vmap(f, (None, 0)))), (2, 4), (2, 4, 3)),
}


@pytest.mark.parametrize("name", NESTS)
def test_batches_of_all_kinds_become_graphs_and_candidates(monkeypatch, name):
    nest, graphs, candidates = NESTS[name]
    rng = np.random.default_rng(0)
    case = strategies.random_case(rng, NASTY["chain"](), 2)
    problem = jax.tree.map(jnp.asarray, case.problem(SMALL))
    problem = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*graphs, *leaf.shape)), problem)
    ticks = rng.integers(0, 99, (*graphs, SMALL.ops, 2))
    problem = problem._replace(op_ticks=jnp.asarray(ticks, jnp.int32))
    shapes = (SMALL.ops, 2), (SMALL.ops,), (SMALL.tensors, 2)
    keys = Keys(*(rng.random((*candidates, *shape), np.float32) for shape in shapes))
    keys = jax.tree.map(jnp.asarray, keys)

    monkeypatch.setattr(gpu_population, "costs", fake_costs)
    found = jax.jit(nest(lane_costs))(problem, keys)
    expected = jax.jit(nest(fake_cost))(problem, keys)
    jax.tree.map(np.testing.assert_array_equal, Cost(*found), expected)
    staged = jax.make_jaxpr(nest(lane_costs))(problem, keys)
    assert str(staged).count("lane_costs") == 1


# What the programs for GPUs consist of: they are lowered here, and not run.

KERNEL = "triton"
# It says for which GPU, as there may be none here.
MESH = AbstractMesh(
    (2,),
    ("pop",),
    axis_types=(AxisType.Auto,),
    abstract_device=AbstractDevice(device_kind="NVIDIA H100", num_cores=None, platform="gpu"),
)


def lowered(fn, *args, platform="cuda"):
    with jax.sharding.use_abstract_mesh(MESH):
        return jax.jit(fn).trace(*args).lower(lowering_platforms=(platform,)).as_text()


@pytest.fixture(scope="module")
def problem():
    return prepare(erdos_renyi(0, 40), unit_rate_devices(2))


def population(problem, *sizes):
    shapes = keys_shape(problem)
    return Keys(*(jnp.zeros((*sizes, *leaf.shape), jnp.float32) for leaf in shapes))


@pytest.mark.parametrize("cost", [evaluate, makespan, peaks])
def test_a_population_on_a_gpu_is_one_kernel(problem, cost):
    args = problem, population(problem, 3)
    text = lowered(jax.vmap(cost, (None, 0)), *args)
    assert text.count(KERNEL) == 1
    assert "stablehlo.while" not in text
    text = lowered(jax.vmap(cost, (None, 0)), *args, platform="cpu")
    assert KERNEL not in text
    assert "stablehlo.while" in text


def test_so_are_one_candidate_graphs_with_populations_and_shards(problem):
    many = jax.vmap(evaluate, (None, 0))
    batch = problems.stack([problem] * 3)
    rows = PartitionSpec("pop")
    shards = jax.shard_map(
        partial(many, problem), mesh=MESH, in_specs=rows, out_specs=rows, check_vma=False
    )
    for fn, *args in (
        (evaluate, problem, population(problem)),
        (jax.vmap(evaluate, (0, None)), batch, population(problem)),
        (jax.vmap(many, (0, None)), batch, population(problem, 4)),
        (shards, population(problem, 4)),
    ):
        text = lowered(fn, *args)
        assert text.count(KERNEL) == 1
        assert "stablehlo.while" not in text


@pytest.mark.slow
def test_64_bit_mode_changes_nothing(problem):
    with jax.enable_x64(True):
        text = lowered(jax.vmap(evaluate, (None, 0)), problem, population(problem, 3))
        rng = np.random.default_rng(0)
        check([strategies.random_case(rng, NASTY["chain"](), 2)] * GRAPHS, rng, 2)
    assert text.count(KERNEL) == 1


@pytest.mark.slow
def test_costs_have_no_gradient(problem):
    keys = population(problem, 2)
    many = jax.jit(jax.vmap(partial(evaluate, problem)))
    found, tangents = jax.jvp(many, (keys,), (keys,))
    jax.tree.map(np.testing.assert_array_equal, found, many(keys))
    assert all(leaf.dtype == jax.dtypes.float0 for leaf in jax.tree.leaves(tangents))


def test_no_candidates_cost_nothing(problem):
    keys = jax.tree.map(lambda leaf: leaf[None], population(problem, 0))
    found = emulated(problems.stack([problem]), keys)
    assert found.makespan.shape == (1, 0) and found.peak.shape == (1, 0, 2)
