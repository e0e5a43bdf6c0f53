"""The values of a program, whatever the order of its equations, are those of the function."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.extend.core import Literal, check_jaxpr
from jax.sharding import AxisType

from gopt.program.inlining import CALLS
from gopt.program.program import trace_program, unroll
from tests.tiers import slow

pytestmark = pytest.mark.small

KEY = jax.random.key(0)
X = jnp.linspace(-2.0, 3.0, 12).reshape(3, 4)
TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(3)(x.reshape(x.shape[0], -1))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.SimpleCell(5))(x)
        return nn.Dense(3)(x[:, -1])


def net(module, shape):
    def values(x):
        return jnp.asarray(np.random.default_rng(0).normal(size=x.shape), x.dtype)

    inputs = values(jax.ShapeDtypeStruct(shape, jnp.float32))
    params = jax.tree.map(values, jax.eval_shape(module.init, KEY, inputs))

    def step(params, inputs, labels):
        def loss(params):
            logits = module.apply(params, inputs)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (params, inputs, jnp.arange(shape[0]) % 3)


@jax.custom_jvp
def clipped(x):
    return jnp.clip(x, -1.0, 1.0)


@functools.partial(clipped.defjvp, symbolic_zeros=True)
def _clipped_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return clipped(x), t * jnp.where(abs(x) < 1, 1.0, 0.1)


@jax.custom_vjp
def rounded(x, scale):
    return jnp.round(x * scale) / scale


rounded.defvjp(lambda x, scale: (rounded(x, scale), scale), lambda scale, g: (2 * g * scale, None))


@jax.custom_batching.custom_vmap
def tripled(x):
    return 3 * x


@tripled.def_vmap
def _tripled_vmap(axis_size, in_batched, x):
    return 3 * x, in_batched[0]


def inner_constant(x):
    weights = jnp.asarray(TABLE)
    inner = jax.jit(lambda y: (y * weights, weights, 2.5))
    return inner(x), inner(x + 1), x @ TABLE.T


def reverse_scan(x):
    def body(carry, row):
        total, count = carry
        return (total + row, count + 1), {"sum": jnp.sin(total), "row": row, "const": 1.0}

    return lax.scan(body, (jnp.zeros(4), 0), x, reverse=True)


def nested_scan(x):
    weights = jnp.asarray(TABLE)

    def outer(carry, row):
        inner, out = lax.scan(lambda c, e: (jnp.tanh(c + e), c * row.sum()), carry.sum(), row)
        return carry + inner * weights, out

    return lax.scan(jax.checkpoint(outer), x, x)


def keys_scan(key):
    keys = jax.random.split(key, 3)

    def body(carry, key):
        return jax.random.fold_in(carry, 7), (jax.random.uniform(key, (2,)), key)

    carry, (values, keys) = lax.scan(body, key, keys)
    return jax.random.key_data(carry), values, jax.random.key_data(keys)


FUNCTIONS = {
    "elementwise": (lambda x: jnp.exp(x) * 2 - x / 3, (X,)),
    "passthrough": (lambda x, y: (x, y, x, [jnp.sin(y)] * 2, 3, None), (X, {"a": X}["a"])),
    "no arguments": (lambda: (jnp.arange(4) + 1, TABLE), ()),
    "scalars": (lambda x, n: x * n + 1, (2.0, 3)),
    "unused": (lambda x, unused: x + 1, (X, X)),
    "constants": (inner_constant, (X,)),
    "integers": (lambda n: (n // 3, n % 2 == 0, jnp.bitwise_xor(n, 5)), (jnp.arange(7),)),
    "booleans": (lambda b: (jnp.where(b, 1, 2), ~b), (jnp.array([True, False]),)),
    "keys": (lambda key: jax.random.normal(jax.random.fold_in(key, 3), (4,)), (KEY,)),
    "relu": (jax.nn.relu, (X,)),
    "relu grad": (jax.grad(lambda x: jax.nn.relu(x).sum()), (X,)),
    "logsumexp": (jax.nn.logsumexp, (X,)),
    "logsumexp grad": (jax.grad(lambda x: jax.nn.logsumexp(x)), (X,)),
    "custom_jvp": (lambda x: clipped(x), (X,)),
    "custom_jvp grad": (jax.grad(lambda x: (clipped(x) * x).sum()), (X,)),
    "custom_vjp": (lambda x: rounded(x, 3.0), (X,)),
    "custom_vjp grad": (jax.grad(lambda x: rounded(x, 3.0).sum()), (X,)),
    "custom_vmap": (lambda x: tripled(x) + jax.vmap(tripled)(x), (X,)),
    "remat": (jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.cos(y)))(x).sum()), (X,)),
    "jvp": (lambda x, t: jax.jvp(jax.nn.softplus, (x,), (t,)), (X, X)),
    "vmap": (jax.vmap(lambda row: jax.nn.softmax(row) @ row), (X,)),
    "sort": (lambda x: lax.top_k(jnp.sort(x, axis=1)[:, ::-1], 2), (X,)),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.ones(4), x), (X,)),
    "reverse scan": (reverse_scan, (X,)),
    "nested scan": (nested_scan, (X,)),
    "nested scan grad": (jax.grad(lambda x: nested_scan(x)[1].sum()), (X,)),
    "empty scan": (lambda x: lax.scan(lambda c, r: (c + r, r), 1.0, x), (jnp.zeros(0),)),
    "scan over keys": (keys_scan, (KEY,)),
    "scan without xs": (lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, length=3), (X,)),
    "while": (lambda x: lax.while_loop(lambda s: s.sum() < 99, lambda s: s * 1.5 + 1, x), (X,)),
    "fori": (lambda n, x: lax.fori_loop(0, n, lambda i, s: s + i * TABLE, x), (5, X)),
    "cond": (lambda p, x: lax.cond(p, lambda y: jnp.sin(y), lambda y: y + TABLE, x), (True, X)),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jax.nn.relu], x), (1, X)),
    "linear solve": (lambda x: jnp.linalg.solve(x[:3, :3] + 5 * jnp.eye(3), x), (X,)),
    "convolutions": net(Convolutions(), (3, 4, 4, 3)),
    "recurrent": net(Recurrent(), (3, 3, 3)),
}


def assert_same(actual, expected, *, exact):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert jnp.asarray(a).dtype == jnp.asarray(b).dtype
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def reference(jaxpr, consts, *args, unrolls):
    """Evaluates a jaxpr primitive by primitive; calls, and scans if `unrolls`, by recursion."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        params, name = eqn.params, eqn.primitive.name
        body = next((params[k] for k in ("jaxpr", "call_jaxpr", "call") if k in params), None)
        inner = getattr(body, "jaxpr", body), getattr(body, "consts", ())
        if name == "scan" and unrolls and params["length"] > 0:
            scanned = [
                jnp.ndim(x) > v.aval.ndim for x, v in zip(inputs, inner[0].invars, strict=True)
            ]
            carried = [
                v.aval.ndim == inside.aval.ndim
                for v, inside in zip(eqn.outvars, inner[0].outvars, strict=True)
            ]
            last = len(inputs) - sum(scanned)
            first = last - sum(carried)
            carry, rows = inputs[first:last], [None] * params["length"]
            for i in list(range(params["length"]))[:: -1 if params["reverse"] else 1]:
                row = [x[i] for x in inputs[last:]]
                out = reference(*inner, *inputs[:first], *carry, *row, unrolls=True)
                carry, rows[i] = out[: last - first], out[last - first :]
            outputs = [*carry, *(jnp.stack(column) for column in zip(*rows, strict=True))]
        elif body is not None and name not in ("scan", "while", "cond"):
            outputs = reference(*inner, *inputs, unrolls=unrolls)
        else:
            outputs = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(params))
        multiple = isinstance(outputs, list | tuple)
        env.update(zip(eqn.outvars, outputs if multiple else [outputs], strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def random_order(program, seed):
    """Returns an order of the equations that is topological and otherwise random."""
    rng = np.random.default_rng(seed)
    producer = {v: i for i, eqn in enumerate(program.equations) for v in eqn.outvars}
    needs = [
        {producer[v] for v in eqn.invars if not isinstance(v, Literal) and v in producer}
        for eqn in program.equations
    ]
    order = []
    left = set(range(len(needs)))
    while left:
        ready = sorted(i for i in left if needs[i].isdisjoint(left))
        order.append(int(rng.choice(ready)))
        left.remove(order[-1])
    return order


LONG = "convolutions", "recurrent"  # to compile


@pytest.mark.parametrize("name", [*(name for name in FUNCTIONS if name not in LONG), *slow(*LONG)])
def test_values_and_form(name):
    fn, args = FUNCTIONS[name]
    program = trace_program(fn, *args)
    unrolled = unroll(program, max_trips=100)
    shuffled = unrolled.with_order(random_order(unrolled, seed=1))
    closed, leaves = jax.make_jaxpr(fn)(*args), jax.tree.leaves(args)
    results = [candidate.as_function()(*args) for candidate in (program, unrolled, shuffled)]
    values = functools.partial(reference, closed.jaxpr, closed.consts, *leaves)
    rolled, flat = values(unrolls=False), values(unrolls=True)
    for result, expected in zip(results, (rolled, flat, flat), strict=True):
        assert_same(jax.tree.leaves(result), expected, exact=False)
    assert_same(results[1], results[2], exact=True)
    assert_same(results[0], fn(*args), exact=False)
    assert_same(jax.jit(unrolled.as_function())(*args), results[0], exact=False)
    for candidate in (program, unrolled, shuffled):
        check_jaxpr(candidate.jaxpr().jaxpr)
        names = [eqn.primitive.name for eqn in candidate.equations]
        assert CALLS.isdisjoint(names)
        bound = [v for eqn in candidate.equations for v in eqn.outvars]
        assert len(bound) == len(set(bound))
        read = {v for eqn in candidate.equations for v in eqn.invars if not isinstance(v, Literal)}
        read.update(v for v in candidate.outputs if not isinstance(v, Literal))
        assert all(not read.isdisjoint(eqn.outvars) for eqn in candidate.equations)
        assert read.issuperset(candidate.constants)
    lengths = [eqn.params["length"] for eqn in unrolled.equations if eqn.primitive.name == "scan"]
    assert set(lengths) <= {0}


def test_traces_from_shapes_and_prints():
    program = trace_program(
        lambda x: jax.nn.relu(x) @ TABLE.reshape(4, 3), jax.ShapeDtypeStruct((3, 4), "f4")
    )
    assert [eqn.primitive.name for eqn in program.equations] == ["max", "dot_general"]
    assert "dot_general" in str(program)
    assert len(program.constants) == len(program.values) == 1


def test_sizes_that_are_no_numbers_are_refused():
    (size,) = jax.export.symbolic_shape("b")
    shapes = {"x": jax.ShapeDtypeStruct((size, 3), "f4")}
    with pytest.raises(ValueError, match=r"args\[0\]\['x'\] has shape \(b, 3\): expected numbers"):
        trace_program(lambda each: each["x"].sum(), shapes)


def test_names_carry_the_scopes_of_the_calls():
    def fn(x):
        with jax.named_scope("outer"):
            return jax.jit(lambda y: jax.named_scope("inner")(jnp.sin)(y))(x)

    (eqn,) = trace_program(fn, X).equations
    assert str(eqn.source_info.name_stack) == "outer/inner"


def test_function_can_be_transformed():
    fn = lambda x: jnp.tanh(x @ TABLE.T).sum()  # noqa: E731
    function = trace_program(fn, X).as_function()
    assert_same(jax.grad(function)(X), jax.grad(fn)(X), exact=False)
    batch = jnp.stack([X, 2 * X])
    assert_same(jax.vmap(function)(batch), jax.vmap(fn)(batch), exact=False)


def test_one_body_called_twice_brings_its_constant_once():
    inner = jax.jit(lambda y: y * TABLE)
    program = trace_program(lambda x: inner(inner(x)), X)
    assert [eqn.primitive.name for eqn in program.equations] == ["mul", "mul"]
    assert len(program.constants) == 1


def test_dead_equations_and_constants_are_dropped():
    def fn(x):
        _ = jnp.exp(x) * TABLE
        return x + 1

    program = trace_program(fn, X)
    assert [eqn.primitive.name for eqn in program.equations] == ["add"]
    assert program.constants == ()


def test_donated_arguments_are_flagged_leaf_by_leaf():
    def fn(state, x, y):
        return jax.tree.map(lambda s: s + x * y, state)

    state = {"a": X, "b": X}
    assert trace_program(fn, state, X, X, donate_argnums=0).donated == (True, True, False, False)
    assert trace_program(fn, state, X, X, donate_argnums=(0, 2)).donated[2:] == (False, True)
    with pytest.raises(ValueError, match=r"donate_argnums has 3, expected 0\.\.2"):
        trace_program(fn, state, X, X, donate_argnums=3)


def test_only_short_scans_are_unrolled():
    def fn(x):
        short, _ = lax.scan(lambda c, r: (c + r, None), jnp.zeros(4), x)
        return lax.scan(lambda c, _: (c * 2, None), short, None, length=9)[0]

    names = [eqn.primitive.name for eqn in unroll(trace_program(fn, X), max_trips=3).equations]
    assert names.count("scan") == 1
    assert names.count("add") == 3
    with pytest.raises(ValueError, match="max_trips is -1"):
        unroll(trace_program(fn, X), max_trips=-1)


def printing_scan(x):
    def body(carry, row):
        jax.debug.print("{}", row)
        return carry + row, None

    return lax.scan(body, jnp.zeros(4), x)[0]


def mutating(x):
    cell = jax.new_ref(x)
    cell[...] += 1
    return cell[...]


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (lambda x: (jax.debug.print("{}", x), x)[1], "debug_callback|debug_print"),
        (jax.jit(lambda x: (jax.debug.print("{}", x), x)[1]), "debug_callback|debug_print"),
        (printing_scan, "scan"),
        (mutating, "new_ref"),
    ],
)
def test_side_effects_are_refused(fn, name):
    with pytest.raises(ValueError, match=rf"equation ({name}) has side effects"):
        trace_program(fn, X)


def test_bad_orders_are_refused():
    program = trace_program(lambda x: jnp.cos(jnp.sin(x)), X)
    with pytest.raises(ValueError, match=r"order\[0\]: equation 1 \(cos\).*equation 0 \(sin\)"):
        program.with_order([1, 0])
    with pytest.raises(ValueError, match=r"order\[1\] is 0: expected each of 0..1 once"):
        program.with_order([0, 0])
    with pytest.raises(ValueError, match=r"order\[0\] is -1"):
        program.with_order([-1, 0])
    with pytest.raises(ValueError, match="order has 1 entries, expected 2"):
        program.with_order([0])


def test_bad_arguments_are_refused():
    function = trace_program(lambda x, d: x + d["a"], X, {"a": X}).as_function()
    with pytest.raises(ValueError, match="arguments have structure"):
        function(X)
    with pytest.raises(ValueError, match=r"args\[1\]\['a'\] is float32\[3\]"):
        function(X, {"a": X[:, 0]})
    with pytest.raises(ValueError, match=r"args\[0\] is int32\[3,4\]"):
        function(X.astype(int), {"a": X})
    with pytest.raises(ValueError, match=r"args\[1\]\['a'\] is 'words', expected float32\[3,4\]"):
        function(X, {"a": "words"})
    with pytest.raises(ValueError, match=r"args\[0\] is 2147483648, expected int32\[\]"):
        trace_program(lambda n: n + 1, 3).as_function()(2**31)


@pytest.mark.parametrize("which", ["in_shardings", "out_shardings"])
@pytest.mark.parametrize("axis", [AxisType.Auto, AxisType.Explicit])
def test_shardings_that_calls_ask_for_are_kept(which, axis):
    kinds = (axis, AxisType.Explicit)  # of the second, which has no part in it
    mesh = jax.make_mesh((2, 1), ("i", "j"), axis_types=kinds)
    halves = jax.NamedSharding(mesh, jax.P("i"))
    x = jnp.arange(8.0)
    program = trace_program(lambda x: jax.jit(lambda x: 2 * x, **{which: halves})(x), x)
    with jax.set_mesh(mesh):
        result = jax.jit(program.as_function())(x)
    assert result.sharding.is_equivalent_to(halves, 1)
    np.testing.assert_array_equal(result, 2 * x)


def test_shardings_on_one_device_add_nothing():
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    fn = jax.jit(jnp.sin, in_shardings=here, out_shardings=here)
    assert len(trace_program(fn, jnp.arange(8.0)).equations) == 1
