"""Configurations that need no search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.cost import kernels_of
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.graph.kinds import KINDS
from gopt.graph.tracing import from_program, trace
from gopt.heuristics.fusion.presets import (
    FUSIONS,
    fuse_everything,
    fuse_nothing,
    instruction_fusion,
    within_devices,
)
from gopt.program.program import trace_program
from gopt.workloads.cases import forward
from gopt.xla import materialised, merge_duplicates

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)


def written(problem, graph, bits):
    """Kinds of the ops whose results are written, in order."""
    is_end = np.asarray(kernels_of(problem, bits).is_end)
    return [KINDS[graph.kind[i]] for i in np.flatnonzero(is_end)]


def test_the_extremes():
    graph = trace(lambda x: jnp.tanh(x) * 2 + jnp.sum(x), X).graph
    problem = prepare_fusion(graph, unit_rate_devices(1))
    assert written(problem, graph, fuse_nothing(problem)) == ["tanh", "mul", "reduce_sum", "add"]
    assert written(problem, graph, fuse_everything(problem)) == ["reduce_sum", "add"]


def test_what_is_dear_is_cloned_only_if_nothing_of_it_is_left():
    def model(x, w):
        kept = jnp.exp(x)
        gone = jnp.sin(x)
        return kept @ w, kept + 1, gone * 2, gone - 1, (x * 3) @ w, x * 3 + 1

    traced = from_program(merge_duplicates(trace_program(model, X, X)))
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    fuse = instruction_fusion(problem)
    kinds = [KINDS[kind] for kind in traced.graph.kind]
    fused = [kinds[i] for i in np.flatnonzero(fuse)]
    assert fused == ["sin", "mul"]
    assert written(problem, traced.graph, fuse).count("mul") == 2  # one of them for the product


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_reduction_ends_its_kernel_as_in_xla(steps):
    def model(x):
        y = jnp.sum(x * 2, axis=1)
        for _ in range(steps):
            y = y + jnp.tanh(y)
        return y

    program = trace_program(model, X)
    traced = from_program(program)
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    assert written(problem, traced.graph, instruction_fusion(problem)) == ["reduce_sum", "add"]
    kinds = [program.equations[k].primitive.name for k in materialised(program)]
    assert kinds == ["reduce_sum", "add"]


def test_the_limit_holds():
    def chain(x):
        for _ in range(20):
            x = x * 2 + 1
        return x

    graph = trace(chain, X).graph
    problem = prepare_fusion(
        graph, unit_rate_devices(1), rules=Rules(RULES["cpu"].fuses_into, max_kernel_ops=8)
    )
    assert len(written(problem, graph, instruction_fusion(problem))) == 5


@pytest.mark.parametrize("name", FUSIONS)
def test_only_what_may_be_fused_is(name):
    graph = trace(lambda x: jnp.tanh(x) @ x, X).graph
    problem = prepare_fusion(graph, unit_rate_devices(1), rows=(30, 30, 60))
    fuse = FUSIONS[name](problem)
    assert fuse.shape == (30,)
    assert not fuse[~problem.configurable].any()


@pytest.mark.slow
def test_xla_writes_mostly_the_same():
    case = forward("nasnet_a", cells=1)
    program = merge_duplicates(trace_program(case.fn, *case.args))
    traced = from_program(program)
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    ours = np.asarray(kernels_of(problem, instruction_fusion(problem)).is_end)
    theirs = set(materialised(program))
    chosen = np.flatnonzero(problem.configurable)
    agrees = [ours[op] == (traced.equations[op] in theirs) for op in chosen]
    assert len(agrees) > 600
    assert np.mean(agrees) > 0.9


def test_what_is_fused_within_devices_has_all_its_readers_there():
    rules = Rules(RULES["gpu"].fuses_into, allow_duplication=False)
    graph = trace(lambda x: jnp.tanh(jnp.exp(x) * 2 + jnp.sin(x)) / (1 + x * x), X).graph
    problem = prepare_fusion(graph, unit_rate_devices(1), rules=rules)
    device = np.random.default_rng(0).integers(0, 2, len(problem.compute))
    every = fuse_everything(problem)
    found = within_devices(problem, every, device)
    for op in range(len(every)):
        readers = problem.consumer[problem.first_use[op] : problem.first_use[op + 1]]
        assert found[op] == (every[op] and (device[readers] == device[op]).all())
    assert 0 < found.sum() < every.sum()
    np.testing.assert_array_equal(within_devices(problem, every, np.zeros_like(device)), every)
