"""Graphs of kernels take the memory that a plain count of lives gives, in place or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gopt import pad, prepare
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import decode
from gopt.cost.schedule.execution import simulate
from gopt.heuristics import keys_from_items
from gopt.program.program import trace_program
from gopt.xla import group, groups, kernel_graph
from gopt.xla.buffers import overwritten
from tests.reference import kernels as reference

pytestmark = pytest.mark.optimized

X = jnp.linspace(-1.0, 1.0, 16).reshape(4, 4)


@jax.jit
def replay(problem, keys):
    return simulate(problem, decode(problem, keys))


def simulated(program, workspace=None, alone=False):
    """Returns the bytes in use beside arguments while each kernel runs, by the cost model."""
    traced = kernel_graph(program, workspace or {}, overwritten(program, alone=alone))
    problem = prepare(pad(traced.graph), unit_rate_devices(1))
    count = int(problem.num_ops)
    schedule = jax.device_get(replay(problem, keys_from_items(problem, [0] * count, range(count))))
    inputs = sum(v.aval.size * v.aval.dtype.itemsize for v in (*program.inputs, *program.constants))
    first = count - len(program.equations)
    return (schedule.usage[first:count].astype(int) * int(problem.unit) - inputs).tolist()


def kernels(fn, *args, written=None, **kwargs):
    program = trace_program(fn, *args, **kwargs)
    every = range(len(program.equations))
    return group(program, groups(program, every if written is None else written))


@st.composite
def functions(draw):
    """Random functions of one argument: element-wise, products, several readers and outputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 10))
    choices = [
        (rng.integers(5), rng.integers(0, k + 1), rng.integers(0, k + 1)) for k in range(count)
    ]
    returned = sorted({count, *rng.integers(0, count + 1, rng.integers(0, 3)).tolist()})

    def fn(x):
        values = [x]
        for what, i, j in choices:
            a, b = values[i], values[j]
            values.append([a + b, jnp.tanh(a), a @ b, jnp.sin(a) * 2.0, a.T @ b][what])
        return [values[k] for k in returned]

    return fn


@pytest.mark.slow
@given(functions(), st.data())
@settings(max_examples=100, deadline=None)
def test_random_programs_take_the_bytes_of_the_lives_of_their_variables(fn, data):
    program = trace_program(fn, X)
    written = data.draw(st.sets(st.integers(0, max(len(program.equations) - 1, 0))))
    program = group(program, groups(program, written))
    if program.equations:
        assert simulated(program, alone=True) == reference.usage(program, alone=True)
        assert simulated(program) == reference.usage(program, alone=False)


def test_an_element_wise_kernel_writes_over_what_nobody_else_reads():
    program = kernels(lambda x: jnp.tanh(x @ x), X)
    assert list(overwritten(program, alone=True)) == [1]
    assert simulated(program) == [64, 64]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.tanh(x),  # an argument
        lambda x: (jnp.tanh(y := x @ x), y),  # an output
        lambda x: jnp.tanh(y := x @ x) @ y,  # another reader
        lambda x: (x @ x) @ x,  # a product
        lambda x: jnp.tanh(x @ x).astype(jnp.float16),  # a smaller result
        lambda x: jnp.tanh((x @ x)[:, 0]),  # a part
    ],
)
def test_what_cannot_be_written_over_is_not(fn):
    program = trace_program(fn, X)
    program = group(program, groups(program, [0]))
    over = overwritten(program, alone=True)
    assert program.equations[0].outvars[0] not in over.values()
    assert not over.keys() & {0}


def test_the_last_of_several_readers_writes_over_what_is_dear_to_make():
    program = kernels(lambda x: jnp.tanh(y := x @ x) + (y @ y).sum(), X, written=[0, 1, 2, 3])
    names = [equation.primitive.name for equation in program.equations]
    assert names[:3] == ["dot_general", "tanh", "dot_general"]
    order = [0, 2, 1, *range(3, len(names))]
    assert 1 not in overwritten(program, alone=False)
    assert 2 in overwritten(program.with_order(order), alone=False)
    assert 2 not in overwritten(program.with_order(order), alone=True)


def test_an_operand_that_no_barrier_holds_is_written_over_first():
    program = kernels(lambda x: (x @ x) + (x.T @ x), X, written=[0, 2])
    add = len(program.equations) - 1
    first, second = program.equations[add].invars
    assert overwritten(program, alone=False) == {add: first}
    assert overwritten(program, alone=False, held={first}) == {add: second}
    assert overwritten(program, alone=False, held={first, second}) == {add: first}
    assert overwritten(program, alone=True, held={first}) == {add: second}


def test_the_last_of_several_readers_does_not_write_over_what_may_be_computed_again():
    program = kernels(lambda x: (jnp.sin(y := jnp.tanh(x)) @ x, jnp.cos(y)), X)
    assert program.equations[-1].primitive.name == "cos"
    assert len(program.equations) - 1 not in overwritten(program, alone=False)


def test_an_update_writes_into_the_buffer_that_it_changes():
    program = kernels(lambda x: jnp.zeros((9, 4)).at[jnp.array([1, 1, 3, 5])].add(x), X)
    filled = max(simulated(program))
    assert filled < 2 * 9 * 4 * 4


def test_what_replaces_a_donated_argument_takes_no_memory_and_waits_for_its_readers():
    def step(w, x):
        loss = (x @ w).sum()
        return w - 0.1 * (w @ x), loss

    program = kernels(step, X, X, donate_argnums=0)
    traced = kernel_graph(program, {}, overwritten(program, alone=True))
    # Two arguments, two products and a sum: the update takes no more.
    assert np.asarray(traced.graph.size).sum() == 2 * 64 + 2 * 64 + 4
    # Whatever the order, the argument is read before it is replaced.
    update = next(
        op
        for op, index in enumerate(traced.equations)
        if index >= 0 and program.equations[index].outvars[0] is program.outputs[0]
    )
    uses = int(traced.graph.num_uses)
    rows = zip(traced.graph.tensor[:uses], traced.graph.consumer[:uses], strict=True)
    makers = {int(traced.graph.producer[tensor]) for tensor, op in rows if op == update}
    readers = [
        op
        for op, index in enumerate(traced.equations)
        if index >= 0 and op != update and program.inputs[0] in program.equations[index].invars
    ]
    assert readers
    assert makers.issuperset(readers)


def test_workspace_is_added():
    program = kernels(lambda x: x @ x @ x, X)
    last = program.equations[1].outvars[0]
    assert simulated(program, {last: 640.0}) == [64, 128 + 640]


@pytest.mark.parametrize(("dtype", "fits"), [(jnp.uint8, True), (jnp.int4, False)])
def test_a_result_takes_a_buffer_of_its_own_size_only(dtype, fits):
    program = kernels(lambda x: jnp.sort(x).astype(jnp.int8), jax.ShapeDtypeStruct((64,), dtype))
    assert len(program.equations) == 2
    assert bool(overwritten(program, alone=True)) == fits
