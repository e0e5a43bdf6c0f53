"""Configurations as programs: the same values, in as many kernels as planned."""

import re
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.cost import kernels_of
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.fusion.programs import groups_of, members, own_fusion
from gopt.graph.tracing import from_program
from gopt.program.program import trace_program
from gopt.xla import group, merge_duplicates
from gopt.xla.fused import fused

decode = jax.jit(kernels_of)
CLONES = False, True


def attention(x, w, scale):
    heads = jnp.split(x @ w, 3, axis=-1)
    weights = jax.nn.softmax(heads[0] @ heads[1].T * 0.1, axis=-1)
    normed = (weights - weights.mean(-1, keepdims=True)) * jax.lax.rsqrt(weights.var(-1) + 1)[
        :, None
    ]
    return (
        jnp.tanh(normed @ heads[2]) * scale + jnp.exp(-heads[0]).reshape(-1, 8)[:, :, None].sum(0).T
    )


def views(x, w, scale):
    """Results that only show others, one of them twice, and an argument."""
    y = jnp.exp(x) + scale
    return (
        y.reshape(-1),
        y,
        y.reshape(-1)[None],
        x.T.T,
        jnp.zeros(3),
        jnp.broadcast_to(scale, (5, 8)),
    )


def branches(x, w, scale):
    """Equations with several results and with bodies."""
    values, places = jax.lax.top_k(x * scale, 2)
    y = jax.lax.cond(places[0, 0] > 3, jnp.sin, jnp.cos, values + 1)
    carry, ys = jax.lax.scan(lambda c, r: (c * 0.5 + r, jnp.sum(c * r)), x[0], x)
    return y.sum(), x.at[1].set(carry * 2), ys


def step(x, w, scale):
    return jax.grad(lambda w: jnp.sum(attention(x, w, scale) ** 2))(w)


FUNCTIONS = {fn.__name__: fn for fn in (attention, views, branches, step)}
ARGS = (
    np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32),
    np.random.default_rng(1).normal(size=(8, 24)).astype(np.float32),
    np.random.default_rng(2).uniform(0.5, 1, 8).astype(np.float32),
)


@pytest.fixture(scope="module", params=list(product(sorted(FUNCTIONS), CLONES)))
def case(request):
    name, allow_duplication = request.param
    fn = FUNCTIONS[name]
    program = merge_duplicates(trace_program(fn, *ARGS))
    traced = from_program(program)
    return fn, traced, problem_of(traced, allow_duplication)


def problem_of(traced, allow_duplication, fuses_into=RULES["cpu"].fuses_into):
    return prepare_fusion(
        traced.graph,
        unit_rate_devices(1),
        rules=Rules(fuses_into, allow_duplication=allow_duplication),
    )


def configurations(problem):
    rng = np.random.default_rng(0)
    rows = len(problem.compute)
    return [rng.random(rows) < share for share in (0, 0.3, 0.7, 1)]


@pytest.mark.slow
def test_values_are_those_of_the_function(case):
    fn, traced, problem = case
    expected = jax.jit(fn)(*ARGS)
    for bits in configurations(problem):
        parts = groups_of(traced, problem, members(decode(problem, bits), problem))
        found = jax.jit(fused(traced.program, parts))(*ARGS)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), found, expected)
        jax.jit(fused(traced.program, parts, platform="cuda")).lower(*ARGS)


def test_each_op_is_in_the_kernels_that_the_cost_counts(case):
    _, traced, problem = case
    for bits in configurations(problem):
        found = decode(problem, bits)
        kernels = members(found, problem)
        parts = {part[-1]: set(part) for part in groups_of(traced, problem, kernels)}
        assert len(kernels) == int(np.sum(found.is_end))
        for end, inside in kernels.items():
            part = parts[traced.equations[end]]
            assert {traced.equations[op] for op in inside} <= part
            others = part & set(traced.equations) - {traced.equations[op] for op in inside}
            primitives = {traced.program.equations[k].primitive.name for k in others}
            assert primitives <= {"broadcast_in_dim"}
        group(traced.program, list(map(tuple, map(sorted, parts.values()))))


def test_xla_merges_no_kernels():
    def model(x):
        return jnp.tanh(jnp.exp(x) * 2 + 1) - x

    program = trace_program(model, ARGS[0])
    traced = from_program(program)
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    for share, count in ((0, 5), (1, 1)):
        bits = np.full(len(problem.compute), bool(share))
        parts = groups_of(traced, problem, members(decode(problem, bits), problem))
        text = jax.jit(fused(program, parts)).lower(ARGS[0]).compile().as_text()
        assert text.count(" call(") == len(parts) == count


@pytest.mark.parametrize("allow_duplication", CLONES)
def test_on_a_cpu_xla_makes_no_more_of_a_kernel_than_one(allow_duplication):

    def model(x, scale):
        y = jnp.exp(x) * scale + 1
        total = jnp.tanh(jnp.sum(y * 2, axis=1)) + 1
        least = jnp.min(y, axis=0) * 3 - jnp.max(x, axis=0)
        return total[::-1] * 3, (y - total[:, None]).T, least

    args = jnp.ones((64, 64)), jnp.ones(64)  # small reductions XLA does not give to a library
    program = merge_duplicates(trace_program(model, *args))
    traced = from_program(program)
    problem = problem_of(traced, allow_duplication)
    for bits in configurations(problem):
        parts = groups_of(traced, problem, members(decode(problem, bits), problem))
        text = jax.jit(fused(program, parts)).lower(*args).compile().as_text()
        calls = re.findall(r" call\(.*to_apply=%([\w.\-]+)", text)
        for called in calls:
            start = text.index(f"\n%{called} (")
            lines = text[start : text.index("\n}", start)].splitlines()[2:]
            views = re.compile(r" (parameter|bitcast|constant)\(")
            steps = [line for line in lines if not views.search(line)]
            # None, where a transpose is but another layout.
            assert len(steps) <= 1, "\n".join(lines)


def test_rules_of_ones_own():
    def model(x, y):
        return (jnp.broadcast_to(x[:, None], (10, 30)) + y).sum(1)

    args = jnp.ones(10), jnp.ones((10, 30))
    traced = from_program(trace_program(model, *args))
    roles = "element-wise", "move", "reduction"
    for fuses_into in (
        (("element-wise", ("reduction",)), ("move", roles)),
        (("element-wise", ("reduction",)),),
        (("move", roles),),
    ):
        for allow_duplication in CLONES:
            problem = problem_of(traced, allow_duplication, fuses_into)
            for bits in configurations(problem):
                parts = groups_of(traced, problem, members(decode(problem, bits), problem))
                found = jax.jit(fused(traced.program, parts))(*args)
                np.testing.assert_allclose(found, model(*args))


def test_kernels_that_xla_would_merge_are_refused(monkeypatch):
    monkeypatch.setattr("gopt.xla.calls.xla_metadata_call", None)
    program = trace_program(jnp.tanh, ARGS[0])
    with pytest.raises(RuntimeError, match="no xla_metadata_call"):
        fused(program, ((0,),))
    fused(program, ((0,),), platform="cuda")


def test_what_xla_does_not_write_it_fuses():
    """A chain of ops, a product that reads it, and an exponential with two readers: written."""

    def fn(x, w):
        y = jnp.tanh(x * 2 + 1) @ w
        z = jnp.exp(y)
        return (z + 1) @ w, (z * 3).sum(0)

    traced = from_program(trace_program(fn, jnp.ones((64, 64)), jnp.ones((64, 64))))
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    fuse = own_fusion(traced, problem)
    assert fuse.shape == problem.configurable.shape
    equations = [traced.program.equations[e] for e in traced.equations if e >= 0]
    names = [""] * (len(traced.equations) - len(equations)) + [e.primitive.name for e in equations]
    assert {name for name, fused in zip(names, fuse, strict=False) if fused} == {"mul", "add"}
    assert not fuse[~problem.configurable].any()
    # The first of the two additions; what the products and the sum read is written, or is a sum.
    assert fuse.sum() == 3


def test_what_xla_writes_in_another_shape_it_does_not_fuse():
    def fn(x, w):
        y = (x + 1).reshape(32, 128)
        return y @ w, y @ (2 * w)

    traced = from_program(trace_program(fn, jnp.ones((64, 64)), jnp.ones((128, 128))))
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    assert problem.configurable.any()
    assert not own_fusion(traced, problem).any()
