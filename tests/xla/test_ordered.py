"""Programs that XLA runs in the order planned, with the values of the function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gopt.measure.timing import memory
from gopt.program.program import trace_program
from gopt.xla import group, groups, kernel_graph, materialised, merge_duplicates
from gopt.xla.buffers import overwritten
from gopt.xla.labels import labelled
from gopt.xla.ordered import check_order, jit_ordered, ordered

pytestmark = [pytest.mark.optimized, pytest.mark.small]

X = jnp.linspace(-1.0, 1.0, 64).reshape(8, 8)
TABLE = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)


def branches(x, weights):
    """Several ways at equal size, joined: many orders."""
    made = [jnp.tanh(x @ w) for w in weights]
    made += [jax.nn.relu(a + b) @ w for a, b, w in zip(made, made[1:], weights, strict=False)]
    return sum(made[1:], made[0]), made[-1].sum()


def step(weights, x):
    """A training step, its gradient inside."""

    def loss(weights):
        total, last = branches(x, weights)
        return jnp.mean(total**2) + last

    value, grads = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value


WEIGHTS = [jnp.cos(k + X) for k in range(4)]


def kernels(fn, *args, **kwargs):
    program = merge_duplicates(trace_program(fn, *args, **kwargs))
    return group(program, groups(program, materialised(program)))


def random_order(traced, rng):
    """Returns a random topological order of the ops of a graph."""
    graph = traced.graph
    uses = int(graph.num_uses)
    makers = graph.producer[graph.tensor[:uses]]
    waits = [set() for _ in range(int(graph.num_ops))]
    for maker, op in zip(makers.tolist(), graph.consumer[:uses].tolist(), strict=True):
        waits[op].add(maker)
    order, left = [], set(range(len(waits)))
    while left:
        ready = sorted(op for op in left if not waits[op] & left)
        order.append(ready[rng.integers(len(ready))])
        left.discard(order[-1])
    return order


def close(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_fifty_orders_are_obeyed_and_have_the_values_of_the_function():
    program = kernels(step, WEIGHTS, X, donate_argnums=0)
    traced = kernel_graph(program, {}, overwritten(program, alone=True))
    expected = jax.jit(step)(WEIGHTS, X)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(50):
        order = random_order(traced, rng)
        seen.add(tuple(order))
        function = jit_ordered(traced.with_order(order))
        compiled = function.lower(WEIGHTS, X).compile()
        check_order(traced.with_order(order), compiled)
        close(compiled([w + 0 for w in WEIGHTS], X), expected)
    assert len(seen) == 50


def test_an_order_that_is_not_kept_is_named():
    program = kernels(branches, X, WEIGHTS)
    traced = kernel_graph(program, {}, {})
    program = traced.with_order(random_order(traced, np.random.default_rng(1)))
    check_order(program, jit_ordered(program).lower(X, WEIGHTS).compile())
    without_barriers = jax.jit(labelled(program)).lower(X, WEIGHTS).compile()
    with pytest.raises(ValueError, match=r"kernel \d+ \(.*\) runs after kernel \d+ \(.*\)"):
        check_order(program, without_barriers)


def returned_as_they_are(x, y):
    return x, 3.0, x.reshape(-1), jnp.arange(4), TABLE @ y, y


def loops(x, key):
    def body(carry, row):
        carry = jnp.sin(carry) + row
        return carry, carry.sum()

    last, sums = lax.scan(body, x[0], x)
    noise = jax.random.normal(key, (8,))
    found = lax.while_loop(lambda s: s < 5, lambda s: s + 1.5, sums[0])
    return lax.cond(found > 6, jnp.sin, jnp.cos, last) + noise, lax.top_k(x, 3)[0]


def scattered(x, index):
    return jnp.zeros((16, 8)).at[index].add(jnp.tanh(x @ x)).sum(0), x[index % 8].sum(1)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x: x, (X,)),
        (jnp.sin, (X,)),
        (lambda x: jnp.sin(jnp.cos(jnp.tanh(x @ x) @ x)), (X,)),
        (lambda x: sum((x @ (k + x)).sum() for k in range(50)), (X,)),
        (lambda x: x.sum() + x.shape[0], (jnp.zeros((0, 4)),)),
        (lambda x: (x @ x @ x, jnp.arange(10000), jnp.tanh(x) @ x, x.sum(0) @ x @ x), (X,)),
        # XLA knows the result of the kernel between two products.
        (lambda x, e: (x @ x, e @ e.T, jnp.tanh(x) @ x), (X, jnp.zeros((5, 0)))),
        (returned_as_they_are, (X, X)),
        (loops, (X, jax.random.key(0))),
        (scattered, (X, jnp.arange(8) % 5)),
    ],
)
def test_nasty_functions(fn, args):
    program = kernels(fn, *args)
    function = jit_ordered(program)
    check_order(program, function.lower(*args).compile())
    close(function(*args), jax.jit(fn)(*args))


def test_the_function_can_be_differentiated_and_vmapped():
    function = ordered(kernels(branches, X, WEIGHTS))

    def total(f):
        return lambda x: sum(leaf.sum() for leaf in jax.tree.leaves(f(x, WEIGHTS)))

    close(jax.grad(total(function))(X), jax.grad(total(branches))(X))
    rows = jnp.stack([X, 2 * X])
    close(
        jax.vmap(function, in_axes=(0, None))(rows, WEIGHTS),
        jax.vmap(branches, in_axes=(0, None))(rows, WEIGHTS),
    )


def test_donated_arguments_are_overwritten():
    program = kernels(step, WEIGHTS, X, donate_argnums=0)
    compiled = jit_ordered(program).lower(WEIGHTS, X).compile()
    needs = memory(compiled)
    assert needs.aliases == sum(w.nbytes for w in WEIGHTS)
    expected = jax.jit(step)(WEIGHTS, X)
    copies = [w + 0 for w in WEIGHTS]
    close(compiled(copies, X), expected)
    assert all(w.is_deleted() for w in copies)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"args\[0\] is float32\[2\], expected float32\[8,8\]"):
        ordered(kernels(jnp.sin, X))(jnp.zeros(2))
