"""Programs whose kernels run more than once: their values, and that XLA runs what was asked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.recompute.cost import runs_of
from gopt.cost.recompute.runs import Choices
from gopt.program.program import trace_program
from gopt.scheduling.candidate import kernels_of
from gopt.scheduling.recompute.program import expanded, repeatable
from gopt.xla import hlo_text
from gopt.xla.applied import jit_donating
from gopt.xla.buffers import repeatable_graph
from gopt.xla.grouping import groups_for_memory
from gopt.xla.labels import label_of, labelled, module_kernels
from gopt.xla.ordered import check_order, jit_ordered
from gopt.xla.recomputed import in_free_order, kernel_runs, may_repeat, repeated, second_runs
from tests.tiers import slow

KEY = jax.random.key(0)
# XLA keeps barriers, and merges equal instructions.
WITH_MERGING = {"xla_disable_hlo_passes": "cse_barrier_expander"}


def step(weights, x, key):
    """A training step of a small network, with dropout, attention and a view that is read late."""

    def loss(weights):
        h, mask = x, jax.random.bernoulli(key, 0.9, (16, 8, 8))
        for w in weights[:-1]:
            a = jax.nn.softmax(jnp.einsum("bik,bjk->bij", h, h)) * mask
            h = h + jnp.tanh(jnp.einsum("bij,bjk->bik", a, h) @ w)
        return jnp.mean((h.reshape(16, -1) @ weights[-1]) ** 2)

    grads = jax.grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)]


def arguments():
    keys = jax.random.split(KEY, 5)
    weights = [jax.random.normal(k, (12, 12)) for k in keys[:3]]
    weights.append(jax.random.normal(keys[3], (96, 4)))
    return weights, jax.random.normal(keys[4], (16, 8, 12)), KEY


@pytest.fixture(scope="module")
def in_doubles():
    with jax.enable_x64(True):
        program = trace_program(step, *arguments(), donate_argnums=0)
        return repeatable(kernels_of(program, merged=True, grouping=groups_for_memory))


@pytest.fixture
def found(in_doubles):
    """Return the kernels of a step in float64: what is left after rounding is an error."""
    with jax.enable_x64(True):
        yield in_doubles


def random_runs(rng, found):
    n = found.problem.num_rows
    splits = rng.integers(0, 4, (n, 1)) * (rng.random((n, 1)) < rng.random())
    priority = np.arange(n) / n + rng.random() * 0.1 * rng.random(n)
    choices = Choices((priority / priority.max()).astype(np.float32), splits.astype(np.int32))
    return runs_of(found.problem, choices)


def check_second_runs(found, kernels, compiled):
    """Check that XLA runs all second runs; one may be fused into its only reader."""
    parts = hlo_text.parse(compiled.as_text()).computations.values()
    ran = {label_of(instruction) for part in parts for instruction in part.instructions.values()}
    ops_of = {found.kernels.groups[k] for k in found.traced.equations if k >= 0}
    again = [k for k in second_runs(kernels.groups) if kernels.groups[k] in ops_of]
    assert set(again) <= ran


def check_values(function):
    expected = jax.jit(step)(*arguments())
    for a, b in zip(function(*arguments()), expected, strict=True):
        assert a.dtype == jnp.float64
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", [*range(4), *slow(*range(4, 200))])
def test_xla_runs_random_plans_as_they_are_asked(found, seed):
    kernels = expanded(found, random_runs(np.random.default_rng(seed), found))
    function = jit_ordered(kernels.program)
    compiled = function.lower(*arguments()).compile()
    check_order(kernels.program, compiled)
    check_second_runs(found, kernels, compiled)
    check_values(function)


@pytest.mark.parametrize("seed", [*range(2), *slow(*range(2, 40))])
def test_xla_runs_random_plans_again_in_its_own_order(found, seed):
    kernels = expanded(found, random_runs(np.random.default_rng(seed), found))
    free = in_free_order(kernels.program, kernels.groups)
    function = jit_donating(free, kernels.program, WITH_MERGING)
    check_second_runs(found, kernels, function.lower(*arguments()).compile())
    check_values(function)


def test_without_barriers_xla_merges_second_runs(found):
    kernels = expanded(found, random_runs(np.random.default_rng(0), found))
    compiled = jit_donating(labelled(kernels.program), kernels.program, WITH_MERGING)
    with pytest.raises(AssertionError):
        check_second_runs(found, kernels, compiled.lower(*arguments()).compile())


def test_second_runs_wait_for_the_kernel_before_them_and_others_are_free():
    def fn(x):
        y = jnp.sin(x)
        z = jnp.cos(x) @ x
        return y @ z

    program = trace_program(fn, jnp.ones((4, 4)))
    sin, cos, dot, last = range(4)
    runs = (sin, cos, dot, sin, last)
    again = repeated(program, runs)
    assert second_runs(runs) == [3]
    text = str(jax.make_jaxpr(in_free_order(again, runs))(jnp.ones((4, 4))))
    (barrier,) = [line for line in text.splitlines() if "optimization_barrier" in line]
    assert barrier.count("f32[4,4]") == 2  # the operand, and the product that is read later
    np.testing.assert_allclose(
        jax.jit(in_free_order(again, runs))(jnp.ones((4, 4))), fn(jnp.ones((4, 4))), rtol=1e-6
    )
    gradient = jax.grad(lambda x: in_free_order(again, runs)(x).sum())(jnp.ones((4, 4)))
    np.testing.assert_allclose(gradient, jax.grad(lambda x: fn(x).sum())(jnp.ones((4, 4))), 1e-5)


def test_a_second_run_may_wait_for_nothing():
    program = trace_program(lambda x: jnp.tanh(jnp.sin(x)), 1.0)
    runs = (0, 0, 1)
    again = repeated(program, runs)
    value = jax.jit(in_free_order(again, runs))(0.5)
    np.testing.assert_allclose(value, np.tanh(np.sin(0.5)), rtol=1e-6)


def test_second_runs_wait_for_the_value_with_most_kernels_on_its_way():
    def fn(x, t):
        y = jnp.sin(x)
        z = jnp.cos(jnp.cos(jnp.cos(x)))
        return y * z * jnp.exp(t)  # the exponential comes last, and is ready at once

    program = trace_program(fn, jnp.ones(4), 1.0)
    names = [e.primitive.name for e in program.equations]
    order = [names.index("sin"), *(k for k, name in enumerate(names) if name == "cos")]
    order += [names.index("exp"), names.index("sin")]
    runs = (*order, *(k for k in range(len(names)) if k not in order))
    again = repeated(program, runs)
    text = str(jax.make_jaxpr(in_free_order(again, runs))(jnp.ones(4), 1.0))
    (barrier,) = [line for line in text.splitlines() if "optimization_barrier" in line]
    assert barrier.count("f32[4]") == 2 and "f32[]" not in barrier


def test_moves_towards_a_core_are_no_kernels():
    text = """HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  start = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(x)
  done = f32[8]{0} copy-done(start)
  joined = f32[8]{0} custom-call(done), custom_call_target="ConcatBitcast"
  ROOT y = f32[8]{0} negate(joined), metadata={op_name="gopt3/neg"}
}
"""
    (only,) = module_kernels(hlo_text.parse(text))
    assert only[0].name == "y" and only[1] == {3}


def test_a_copy_behind_a_barrier_has_the_label_of_its_reader_alone():
    text = """HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} negate(x), metadata={op_name="gopt0/neg"}
  copied = f32[8]{0} copy(x)
  both = (f32[8]{0}, f32[8]{0}) tuple(copied, y)
  barrier = (f32[8]{0}, f32[8]{0}) opt-barrier(both)
  first = f32[8]{0} get-tuple-element(barrier), index=0
  second = f32[8]{0} get-tuple-element(barrier), index=1
  z = f32[8]{0} sine(first), metadata={op_name="gopt1/sin"}
  ROOT w = f32[8]{0} multiply(z, second), metadata={op_name="gopt2/mul"}
}
"""
    labels = {i.name: found for i, found in module_kernels(hlo_text.parse(text))}
    assert labels == {"y": {0}, "copied": {1}, "z": {1}, "w": {2}}


def test_a_run_has_results_of_its_own_and_readers_read_the_latest():
    def fn(x):
        y = jnp.sin(x)
        return jnp.cos(y) + y

    program = trace_program(fn, 1.0)
    sin, cos, add = range(3)
    again = repeated(program, [sin, cos, sin, add])
    first, second = again.equations[0].outvars[0], again.equations[2].outvars[0]
    assert again.equations[1].invars == [first]
    assert again.equations[3].invars[1] is second is not first
    assert again.outputs == program.outputs
    np.testing.assert_allclose(
        again.as_function()(0.5), np.sin(0.5) + np.cos(np.sin(0.5)), rtol=1e-6
    )


def test_runs_that_miss_an_operand_or_an_output_are_refused():
    program = trace_program(lambda x: jnp.cos(jnp.sin(x)), 1.0)
    with pytest.raises(ValueError, match=r"runs\[0\] reads a float32\[\] that no run before makes"):
        repeated(program, [1, 0])
    with pytest.raises(ValueError, match="output 0 is made by no run"):
        repeated(program, [0])


def test_a_view_is_shown_again_only_after_what_it_shows_has_run_again():
    def fn(x):
        flat = jnp.sin(x).reshape(6)
        return jnp.cos(flat), jnp.exp(flat)

    program = trace_program(fn, jnp.ones((2, 3)))
    traced = repeatable_graph(program, {}).traced
    sin, cos, exp = (op for op, k in enumerate(traced.equations) if k >= 0)  # a view has no op

    def names(ops):
        return [program.equations[k].primitive.name for k in kernel_runs(traced, ops)]

    assert names([sin, cos, exp]) == ["sin", "reshape", "cos", "exp"]
    again = [sin, cos, sin, exp]
    assert names(again) == ["sin", "reshape", "cos", "sin", "reshape", "exp"]
    x = jnp.linspace(0, 1, 6).reshape(2, 3)
    found = repeated(program, kernel_runs(traced, again)).as_function()(x)
    for a, b in zip(found, fn(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: jnp.tanh(x) @ x, True),
        (lambda x: jnp.argmax(x), False),
        (lambda x: jnp.argmax(x > 0), True),
        (lambda x: jnp.sort(x), False),
        (lambda x: x.astype(int), False),
        (lambda x: jnp.linalg.eigh(x @ x.T)[1], False),
        (lambda x: jax.scipy.linalg.lu(x)[0], False),
        (lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), False),
        (lambda x: jax.scipy.special.erfc(x), True),
        (lambda x: jax.lax.top_k(x, 2)[1], False),
        (lambda x: jax.random.uniform(KEY, x.shape) + x, True),
        (lambda x: jax.lax.scan(lambda c, r: (c, jnp.sort(r)), 0, x)[1], False),
    ],
)
def test_what_depends_on_rounding_never_runs_again(fn, expected):
    program = trace_program(fn, jnp.ones((4, 4)))
    assert all(map(may_repeat, program.equations)) == expected
