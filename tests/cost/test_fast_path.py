"""The loops of the cost stay native: what makes the fast path fast is checked in the program."""

import re

import jax
import jax.numpy as jnp
import pytest

from gopt.cost.fusion.cost import flipped_costs, fusion_cost
from gopt.cost.fusion.levels import fuse_by_level
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.joint.cost import uses_of_kernels
from gopt.cost.joint.problem import prepare_joint
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import Keys, decode, keys_shape
from gopt.cost.schedule.execution import evaluate, makespan, peaks, simulate
from gopt.cost.schedule.problem import prepare
from gopt.sources.synthetic import erdos_renyi

pytestmark = [pytest.mark.optimized, pytest.mark.slow]


@pytest.fixture(scope="module")
def problem():
    return prepare(erdos_renyi(0, 300), unit_rate_devices(2))


def population(problem, size):
    shapes = keys_shape(problem)
    return Keys(*(jnp.zeros((size, *leaf.shape), jnp.float32) for leaf in shapes))


def check_loops(text, loops, calls, maps=1):
    """All loops are native functions that copy no arrays; the map over candidates may be one."""
    assert text.count(" while(") - text.count("xla_cpu_small_call") <= maps
    # Passes are called, and not made one long computation, whose steps go to many threads.
    assert text.count('inlineable="false"') >= calls
    bodies = re.findall(r"body=%([\w.\-]+)", text)
    assert len(bodies) >= loops
    for body in bodies:
        start = text.index(f"\n%{body} (")
        lines = text[start : text.index("\n}", start)].splitlines()
        if any("to_apply=%xla_metadata_call" in line for line in lines):
            continue  # the map over candidates
        assert [line for line in lines if re.search(r"= \w+\[\d\d+\]\S* copy\(", line)] == []


@pytest.mark.parametrize("cost", [evaluate, makespan, peaks])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_every_loop_but_the_map_over_candidates_is_one_native_function(cost, devices):
    problem = prepare(erdos_renyi(0, 300), unit_rate_devices(devices))
    compiled = jax.jit(jax.vmap(cost, (None, 0))).lower(problem, population(problem, 4))
    check_loops(compiled.compile().as_text(), loops=6, calls=4)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_loops_of_dispatch_are_native(devices):
    problem = prepare(erdos_renyi(0, 300), unit_rate_devices(devices))
    keys = population(problem, 4)
    run = jax.jit(jax.vmap(dispatch.evaluate, (None, 0)))
    check_loops(run.lower(problem, keys).compile().as_text(), loops=12, calls=4)
    placements = Keys(keys.device, None, None)  # not ranked
    check_loops(run.lower(problem, placements).compile().as_text(), loops=7, calls=3)
    run = jax.jit(jax.vmap(dispatch.makespan, (None, 0)))
    check_loops(run.lower(problem, placements).compile().as_text(), loops=5, calls=2)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_loops_of_the_timing_of_one_candidate_are_native(devices):
    problem = prepare(erdos_renyi(0, 300), unit_rate_devices(devices))
    keys = jax.tree.map(lambda x: x[0], population(problem, 1))
    compiled = jax.jit(dispatch.timed).lower(problem, keys).compile()
    check_loops(compiled.as_text(), loops=16, calls=8, maps=0)


@pytest.mark.parametrize("count", [33, 64])
def test_loops_of_the_cost_of_a_fusion_are_native(count):
    problem = prepare_fusion(erdos_renyi(0, 300), unit_rate_devices(1))
    fuse = jnp.zeros((count, len(problem.compute)), bool)
    compiled = jax.jit(jax.vmap(fusion_cost, (None, 0))).lower(problem, fuse)
    check_loops(compiled.compile().as_text(), loops=5, calls=4)


def test_loops_of_fusion_by_levels_are_native():
    problem = prepare_fusion(erdos_renyi(0, 300), unit_rate_devices(1))
    level = jnp.zeros((4, len(problem.compute)), jnp.int32)
    compiled = jax.jit(jax.vmap(fuse_by_level, (None, 0))).lower(problem, level).compile()
    check_loops(compiled.as_text(), loops=8, calls=3)


def test_loops_of_schedules_of_kernels_are_native():
    joint = prepare_joint(erdos_renyi(0, 300), unit_rate_devices(2))
    end = jnp.zeros((4, joint.schedule.shape.ops), jnp.int32)
    compiled = jax.jit(jax.vmap(uses_of_kernels, (None, 0))).lower(joint.schedule, end).compile()
    check_loops(compiled.as_text(), loops=5, calls=1)


def test_loops_of_the_costs_of_flips_are_native_but_the_one_over_flips():
    problem = prepare_fusion(erdos_renyi(0, 300), unit_rate_devices(1))
    fuse = jnp.zeros(len(problem.compute), bool)
    compiled = jax.jit(flipped_costs).lower(problem, fuse).compile()
    # Those of the configuration as it is, and those of a flip.
    check_loops(compiled.as_text(), loops=11, calls=8)


def test_no_loop_selects_or_copies_whole_states(problem):
    keys = population(problem, 4)
    jaxpr = jax.make_jaxpr(jax.vmap(evaluate, (None, 0)))(problem, keys)
    bodies = list(_loop_bodies(jaxpr.jaxpr))
    assert len(bodies) > 5
    for body in bodies:
        for eqn in body.eqns:
            assert eqn.primitive.name != "select_n" or eqn.outvars[0].aval.size == 1


def test_one_objective_alone_leaves_out_what_the_other_one_needs(problem):
    def arrays_in_loops(fn):
        text = jax.jit(jax.vmap(fn, (None, 0))).lower(problem, population(problem, 4))
        found = re.findall(r"= (\(.*?\)) while\(", text.compile().as_text())
        return sum(loop.count("[") for loop in found)

    both = arrays_in_loops(evaluate)
    assert arrays_in_loops(makespan) < both
    assert arrays_in_loops(peaks) < both
    # What is left out of each is most of the rest.
    assert arrays_in_loops(makespan) + arrays_in_loops(peaks) < 2 * both - 10


@pytest.mark.slow
def test_memory_is_that_of_one_candidate(problem):
    def temporaries(size):
        lowered = jax.jit(jax.vmap(evaluate, (None, 0))).lower(problem, population(problem, size))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert 0 < temporaries(1024) == temporaries(4)


@pytest.mark.slow
def test_simulate_composes_with_vmap(problem):
    keys = population(problem, 3)
    every = jax.vmap(lambda k: simulate(problem, decode(problem, k)))(keys)
    assert every.makespan.shape == (3,)


def _loop_bodies(jaxpr):
    for eqn in jaxpr.eqns:
        for name, value in eqn.params.items():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if not hasattr(inner, "eqns"):
                    continue
                if eqn.primitive.name == "while" and name == "body_jaxpr":
                    yield inner
                yield from _loop_bodies(inner)
