"""Arguments that cannot be traced, objects that are changed, and positions of arguments."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gopt
from gopt.program.arguments import positions
from gopt.program.program import trace_program

pytestmark = pytest.mark.small

X = jnp.ones((2, 4))


class Model(nnx.Module):
    def __init__(self):
        self.layer, self.calls = nnx.Linear(4, 4, rngs=nnx.Rngs(0)), nnx.Variable(jnp.zeros(()))

    def __call__(self, x):
        return self.layer(x)


def descend(model, x):
    gradient = nnx.grad(lambda model: model(x).sum())(model)
    model.layer.kernel[...] -= gradient.layer.kernel[...]


def count(model, x):
    model.calls[...] += 1
    return model(x)


def grow(model, x):
    model.other = nnx.Param(x)
    return model(x)


@pytest.mark.parametrize("change", [descend, count, grow])
@pytest.mark.parametrize("call", [lambda fn: fn, nnx.jit])
def test_an_object_that_is_changed_is_refused(change, call):
    message = r"fn changes args\[0\]\['model'\], a Model.*nnx\.split.*nnx\.merge"
    with pytest.raises(ValueError, match=message):
        trace_program(lambda each, x: call(change)(each["model"], x), {"model": Model()}, X)
    with pytest.raises(ValueError, match=r"fn changes args\[1\], a Model"):
        trace_program(call(lambda x, model: change(model, x)), X, Model())


@pytest.mark.parametrize("call", [lambda fn: fn, nnx.jit])
def test_an_object_that_is_only_read_is_traced(call):
    model = Model()
    program = trace_program(call(lambda model, x: (model(x), model)), model, X)
    value, same = program.as_function()(model, X)
    np.testing.assert_allclose(value, model(X), rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, same, model)


def test_split_and_merged_objects_are_traced():
    graph, state = nnx.split(Model())

    def step(state, x):
        model = nnx.merge(graph, state)
        descend(model, x)
        return nnx.state(model)

    program = trace_program(step, state, X)
    expected = jax.jit(step)(state, X)
    ours = program.as_function()(state, X)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), ours, expected)


def test_an_object_that_is_changed_and_returned_is_traced():
    def reset(model, x):
        count(model, x)
        model.layer.bias[...] = jnp.zeros(4)
        return model

    program = trace_program(nnx.jit(reset), Model(), X)
    assert program.as_function()(Model(), X).calls == 1


def test_containers_of_python_may_be_changed():
    def fn(each, x):
        each["y"] = x + 1
        return each["y"] * each.pop("x")

    assert [e.primitive.name for e in trace_program(fn, {"x": X}, X).equations] == ["add", "mul"]


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (lambda x, n: x[:n], (X, 2), "needs the value of an argument.*functools.partial"),
        (lambda x, n: x.reshape(n, -1), (X, 2), "needs the value of an argument"),
        (lambda x, n: x if n else -x, (X, True), "needs the value of an argument"),
        (lambda x, n: np.asarray(x), (X, 2), "needs the value of an argument"),
        (lambda x, n: [x for _ in range(n)], (X, 2), "needs the value of an argument"),
        (jax.jit(lambda x, n: x[:n], static_argnums=1), (X, 2), "functools.partial"),
        (lambda x, act: x, (X, {"act": "relu"}), r"args\[1\]\['act'\] is 'relu'.*eqx\.partition"),
        (lambda x, act: x, (X, [jnp.tanh]), r"args\[1\]\[0\] is .*expected an array"),
        (lambda x: x, (np.array(["a"]),), r"args\[0\] is array\(\['a'\]"),
        (
            lambda x: x,
            ([np.datetime64("2020-01-01")],),
            r"args\[0\]\[0\] has dtype datetime64\[D\]",
        ),
        (lambda x: x, (np.zeros(2, [("a", "i4")]),), r"args\[0\] is array\(\[\(0,"),
        (
            lambda x: x,
            (np.longdouble(1),),
            r"args\[0\] has dtype float128: expected a dtype of JAX",
        ),
        (lambda x: x, (X, 2**31), r"args\[1\] is 2147483648: expected a number that fits int32"),
        (lambda x: x, (X, -(2**31) - 1), r"args\[1\] is -2147483649: expected a number that fits"),
        (lambda x: x, (jax.ShapeDtypeStruct((-1, 2), int),), r"args\[0\] has shape \(-1, 2\)"),
    ],
)
def test_arguments_that_cannot_be_traced_are_named(fn, args, message):
    with pytest.raises(ValueError, match=message):
        trace_program(fn, *args)


def test_bound_static_arguments_are_traced():
    fn = jax.jit(lambda x, n: x[:n], static_argnames="n")
    assert trace_program(partial(fn, n=1), X).as_function()(X).shape == (1, 4)


def test_errors_of_the_function_stay_as_they_are():
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions"):
        trace_program(lambda x: x @ x, X)

    def fail(x):
        raise KeyError("mine")

    def words(x):
        return "words"

    with pytest.raises(TypeError, match=r"function words at .*test_arguments.py"):
        trace_program(words, X)
    with pytest.raises(OverflowError):
        trace_program(lambda x: 2**31, X)

    with pytest.raises(KeyError, match="mine"):
        trace_program(fail, X)


@pytest.mark.parametrize("verb", [gopt.trace, gopt.schedule, gopt.fuse, gopt.rewrite])
def test_keyword_arguments_of_the_function_are_named(verb):
    message = (
        rf"gopt\.{verb.__name__} has no option 'train'.*functools\.partial\(fn, train=\.\.\.\)"
    )
    with pytest.raises(TypeError, match=message):
        verb(lambda x, train: x, X, train=True)


@pytest.mark.parametrize("given", ["0", b"0", 0.5, None, [0.0], [True], True, ["x"], -1, 2, [0, 2]])
def test_bad_positions_are_refused(given):
    with pytest.raises(ValueError, match=r"donate_argnums (is|has) .*expected"):
        positions("donate_argnums", given, 2)


def test_positions_are_sorted():
    for given in (1, [1], {1}, np.int64(1), (1, 1)):
        assert positions("constant_argnums", given, 2) == (1,)
    assert positions("constant_argnums", range(1, -1, -1), 2) == (0, 1)
    assert positions("constant_argnums", (), 0) == ()


def test_the_verbs_check_positions():
    with pytest.raises(ValueError, match=r"constant_argnums has -1, expected 0\.\.0"):
        gopt.rewrite(jnp.sin, X, constant_argnums=-1)
    for verb in (gopt.trace, gopt.schedule, gopt.fuse):
        with pytest.raises(ValueError, match="donate_argnums is '0'"):
            verb(jnp.sin, X, donate_argnums="0")


@jax.tree_util.register_pytree_node_class
class Doubled:
    """Makes its leaf, and the data beside it, whenever it is flattened."""

    def __init__(self, value):
        self.value = value

    def tree_flatten(self):
        return (self.value * 1.0,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_objects_that_make_their_leaves_are_traced():
    program = trace_program(lambda each: each.value + 1, Doubled(X))
    np.testing.assert_array_equal(program.as_function()(Doubled(X)), X + 1)


def test_errors_with_the_word_static_stay_as_they_are():
    def fail(x):
        raise ValueError("electrostatic energy diverges")

    with pytest.raises(ValueError, match=r"^electrostatic energy diverges"):
        trace_program(fail, X)


def test_compiler_options_of_the_function_are_refused():
    fn = jax.jit(jnp.sin, compiler_options={"xla_cpu_enable_fast_math": True})
    with pytest.raises(ValueError, match="fn is jitted with compiler_options: expected a function"):
        trace_program(fn, X)


def test_options_that_are_nearly_right_are_named():
    with pytest.raises(TypeError, match="no option 'evaluation': expected 'evaluations', or bind"):
        gopt.schedule(jnp.sin, X, evaluation=3)
    with pytest.raises(TypeError, match=r"expected a function that jax\.jit was given them for"):
        gopt.rewrite(jnp.sin, X, donate_argnums=0)
