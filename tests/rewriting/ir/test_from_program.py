"""Programs as terms, and back: the values are those of the function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gopt.program.program import trace_program
from gopt.rewriting.ir.from_program import terms_of_program
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram
from tests.workloads.tiny import compiled, traced

FAST = {"xla_backend_optimization_level": 0}


def written(fn, *args, constant=()):
    program = trace_program(fn, *args)
    flat = [k in constant for k, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    terms = Terms()
    roots = terms_of_program(terms, program, flat)
    return terms, roots, RewrittenProgram(terms, roots, program, constant)


def run(fn, *args):
    """Calls a function, as one program."""
    return jax.jit(lambda *args: fn(*args))(*args)


def operators(terms, roots):
    return [terms[k].operator for k in terms.live(roots)]


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


# What they are made of is what all are made of.
NAMES = (
    *("bert", "conformer", "dlrm", "graph_network", "mamba", "resnext", "rnnlm", "shufflenet_v2"),
    *("ssd", "switch", "transformer_xl_adaptive", "wavenet"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_values_of_a_workload_stay(name):
    fn, _ = traced(name).workload.forward()
    apply, variables, inputs = compiled(name)
    _, _, back = written(fn, variables, *inputs, constant=(0,))
    folded = jax.jit(back.fold, compiler_options=FAST)(variables)
    found = jax.jit(back.run, compiler_options=FAST)(folded, *inputs)
    expected = apply(variables, *inputs)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        scale = np.abs(theirs).max() + 1e-30
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=2e-6)


@pytest.mark.parametrize(
    ("contract", "batch"),
    [
        (((1,), (0,)), ((), ())),
        (((0,), (1,)), ((), ())),
        (((0, 2), (3, 1)), ((), ())),
        (((2,), (1,)), ((0,), (0,))),
        (((0,), (2,)), ((2, 1), (0, 3))),
        (((), ()), ((1,), (2,))),
    ],
)
def test_products_with_axes_in_any_order_are_products_of_matrices(contract, batch):
    rng = np.random.default_rng(0)
    x = rng.integers(1, 4, 3).tolist()
    y = rng.integers(1, 4, 4).tolist()
    for a, b in zip((*contract[0], *batch[0]), (*contract[1], *batch[1]), strict=True):
        y[b] = x[a]

    def fn(x, y):
        return lax.dot_general(x, y, (contract, batch))

    args = random(*x), random(*y, seed=1)
    terms, roots, back = written(fn, *args)
    assert operators(terms, roots).count("matmul") == 1
    np.testing.assert_allclose(run(back, *args), run(fn, *args), rtol=1e-5)


@pytest.mark.parametrize(
    "layout", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NCHW", "HWIO", "NHWC")]
)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_with_axes_in_any_order_are_those_of_images(layout, groups):
    size = {"N": 2, "H": 7, "W": 6, "C": 4, "h": 3, "w": 2, "I": 4 // groups, "O": 6}
    kernel = "".join(letter.lower() if letter in "HW" else letter for letter in layout[1])
    x = random(*(size[k] for k in layout[0]))
    y = random(*(size[k] for k in kernel), seed=1)

    def fn(x, y):
        return lax.conv_general_dilated(
            x, y, (2, 1), [(1, 0), (0, 2)], rhs_dilation=(1, 2), dimension_numbers=layout,
            feature_group_count=groups,
        )  # fmt: skip

    terms, roots, back = written(fn, x, y)
    assert operators(terms, roots).count("conv") == 1
    np.testing.assert_allclose(run(back, x, y), run(fn, x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (lambda x: x[1:3, :2], {"slice"}),
        (lambda x: jnp.concatenate([x, 2 * x, x], axis=1), {"mul", "number", "concat"}),
        (lambda x: jnp.split(x, [1, 3])[1], {"slice"}),
        (lambda x: jax.nn.relu(x), {"relu"}),
        (lambda x: lax.squeeze(lax.slice(x, (0, 1), (4, 2)), (1,)), {"slice", "reshape"}),
        (lambda x: lax.expand_dims(x.T, (1,)), {"transpose", "reshape"}),
        (lambda x: lax.broadcast_in_dim(x, (4, 2, 4), (0, 2)), {"equation"}),
        (lambda x: lax.stop_gradient(x) - x, {"sub"}),
        (lambda x: lax.max(x > 0, False), {"number", "equation"}),
        (lambda x: lax.max(lax.complex(x, -x), jnp.complex64(0)), None),
        (lambda x: lax.max(jnp.round(9 * x).astype(jnp.int8), jnp.int8(0)), None),
        (lambda x: lax.slice_in_dim(lax.concatenate([x * k for k in range(400)], 0), 0, 1), None),
        (lambda x: lax.slice(x, (0, 0), (4, 4), (2, 1)), {"equation"}),
        (lambda x: lax.reshape(x, (16,), (1, 0)), {"equation"}),
        (lambda x: jnp.maximum(x[0, 0] * 0, jnp.zeros((4, 4))), None),
        (lambda x: lax.sort(x) + jnp.sin(x), {"equation", "result", "add"}),
        (lambda x: sum(lax.top_k(x, 2)[0] for _ in range(2)), None),
        (lambda x: lax.fori_loop(0, 3, lambda k, x: x + k, x), None),
        (lambda x: (x, 1.0, jnp.float32(2)), None),
    ],
)
def test_what_equations_become(fn, names):
    x = random(4, 4)
    terms, roots, back = written(fn, x)
    if names is not None:
        assert set(operators(terms, roots)) == {"argument", *names}
    found, expected = (jax.tree.leaves(run(each, x)) for each in (back, fn))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


NCHW = (0, 3, 1, 2)


def images(weights, x):
    """A network of images whose channels come second, as PyTorch and ONNX have them."""

    def conv(x, kernel):
        numbers = ("NCHW", "OIHW", "NCHW")
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    def each(name):
        return weights[name][None, :, None, None]

    x = conv(x, weights["first"]) + 0.0
    x = (x - each("mean")) / jnp.sqrt(each("variance") + 1e-5) * each("scale") + each("bias")
    y = jax.nn.relu(lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 1), "SAME"))
    z = lax.concatenate([y, jnp.tanh(conv(y, weights["then"]))], 1)
    z = z[:, 1:, 1:] * 1.0 + lax.reduce_window(
        z,
        0.0,
        lambda a, b: a + b + 0 * a,
        (1, 2, 2, 1),
        (1, 1, 1, 1),
        ((0, 0), (0, 0), (0, 0), (0, 0)),
    )
    stacked = lax.concatenate([z[None], jnp.exp(z)[None]], 0)
    return stacked.sum(0), z.sum((1, 3)), z.max(2), z.mean((0, 2, 3))


def weights_of_images():
    kernels = {"first": random(4, 3, 3, 3), "then": random(4, 4, 3, 3, seed=1)}
    vectors = {name: random(4, seed=2 + k) for k, name in enumerate(("mean", "scale", "bias"))}
    return {**kernels, **vectors, "variance": jnp.square(random(4, seed=9))}


def test_images_keep_one_layout():
    args = weights_of_images(), random(2, 3, 8, 7)
    terms, roots, back = written(images, *args, constant=(0,))
    transposes = [
        terms[k]
        for k in terms.live(roots)
        if terms[k].operator == "transpose" and not terms.constant[k]
    ]
    first, *last = transposes
    assert terms[first.inputs[0]].operator == "argument"
    assert {each.inputs[0] for each in last} <= {
        terms[root].inputs[0] for root in roots if terms[root].operator == "transpose"
    }
    assert len(last) == 2  # a sum of images, and what of them is the largest of each row
    for ours, theirs in zip(run(back, *args), run(images, *args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_done_to_transposed_arrays_stays_the_same(seed):
    rng = np.random.default_rng(seed)
    shape, permutation = tuple(rng.integers(2, 5, 4)), tuple(map(int, rng.permutation(4)))
    axes = tuple(map(int, rng.choice(4, int(rng.integers(1, 4)), replace=False)))
    window, strides = rng.integers(1, 3, (2, 4)).tolist()

    def fn(w, x):
        y = x.transpose(permutation)
        z = jnp.where(y > 0, jnp.exp(y), w) - y * w
        parts = lax.concatenate([z, y], axes[0])
        return (
            parts,
            lax.slice_in_dim(parts, 1, 2, axis=axes[-1]),
            z.sum(axes),
            lax.reduce_window(z, -jnp.inf, lax.max, window, strides, "SAME"),
            z + x.sum() + x.reshape(z.shape),  # what is not transposed
            y + x.transpose(permutation[::-1]).reshape(y.shape),
        )

    x = random(*shape)
    args = random(*x.transpose(permutation).shape, seed=1), x
    _, _, back = written(fn, *args, constant=(0,))
    for ours, theirs in zip(run(back, *args), run(fn, *args), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_divisors_that_are_known_are_factors_if_that_is_as_exact(dtype):
    x, w = (jnp.asarray(9 * random(4, 4, seed=k), dtype) for k in range(2))
    w = jnp.where(w == 0, jnp.ones_like(w), w)
    terms, roots, back = written(lambda w, x: lax.div(x, w), w, x, constant=(0,))
    assert ("mul" in operators(terms, roots)) == (dtype == "float32")
    np.testing.assert_allclose(
        np.asarray(back(w, x), float), np.asarray(lax.div(x, w), float), rtol=1e-6
    )


def test_equal_equations_are_one_term():
    def fn(x):
        return jnp.sin(x @ x) + jnp.sin(x @ x) * lax.cumsum(x) + lax.cumsum(x)

    terms, roots, _ = written(fn, random(4, 4))
    found = operators(terms, roots)
    assert found.count("matmul") == 1
    assert found.count("equation") == 2


def test_what_depends_on_constants_alone_is_folded():
    table = np.arange(16, dtype=np.float32).reshape(4, 4)

    def fn(w, x, v):
        return (w @ w + table) @ x + jnp.sin(v), w

    args = random(4, 4), random(4, 4, seed=1), random(4, seed=2)
    _, _, back = written(fn, *args, constant=(0, 2))
    folded = back.fold(args[0], args[2])
    assert len(folded) == 3  # the matrix, the sine, and the argument that is returned
    jaxpr = jax.make_jaxpr(back.run)(folded, args[1])
    names = [eqn.primitive.name for eqn in jaxpr.eqns]
    assert names.count("dot_general") == 1
    assert "sin" not in names
    for ours, theirs in zip(back.run(folded, args[1]), fn(*args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_arguments_are_checked():
    args = random(4, 4), random(4, 4)
    _, _, back = written(lambda w, x: w @ x, *args, constant=(0,))
    with pytest.raises(ValueError, match="there are 2 constant arguments: expected 1"):
        back.fold(*args)
    folded = back.fold(args[0])
    with pytest.raises(ValueError, match="there are 0 other arguments: expected 1"):
        back.run(folded)
    with pytest.raises(ValueError, match=r"args\[1\] is .*expected"):
        back.run(folded, args[1][:2])
    with pytest.raises(ValueError, match=r"args\[0\] is .*expected"):
        back(args[0][:2], args[1])
