"""Functions in stages on several devices: values, transfers, and the memory of each device."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gopt
from gopt.apply import check_order
from gopt.hardware import homogeneous
from gopt.placement import Staged
from gopt.stages import Send, Stage
from gopt.workloads import WORKLOADS

TABLE = np.linspace(0, 1, 48, dtype=np.float32).reshape(8, 6)
X = jnp.asarray(TABLE)

# Ops worth sending to another device.
MACHINE = homogeneous(4, flop_rate=1e9, memory_bandwidth=1e9, launch=1e-6, bandwidth=1e10)


def gradient(w, x):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w["in"]) @ w["out"]))(w)


def views(x, y):
    """Views are read and returned; so are an argument, a captured array and a literal."""
    flat = (x + 1).reshape(-1)
    return flat[::2], flat.reshape(6, 8), x, TABLE.T @ y, 3.0, jnp.zeros(4), x.reshape(-1)


def unread(x):
    values, _ = lax.top_k(x @ x.T, 3)
    return values.sum()


def loops(x, keys):
    def step(carry, key):
        carry = jnp.sin(carry) + jax.random.normal(key, carry.shape)
        return carry, carry.sum()

    last, sums = lax.scan(step, x, keys)
    return lax.cond(sums[0] > 0, jnp.sum, jnp.prod, last), sums


def branches(x):
    made = [jnp.tanh(x @ x.T + k) @ x for k in range(6)]
    return [a @ b.T for a, b in itertools.pairwise(made)], sum(made).sum()


CASES = {
    "gradient": (gradient, ({"in": X, "out": X.T}, jnp.ones((5, 8)))),
    "views": (views, (X, X[:, 0].reshape(-1))),
    "unread": (unread, (X,)),
    "loops": (loops, (X, jax.random.split(jax.random.key(0), 4))),
    "branches": (branches, (X,)),
    "nothing": (lambda x: x, (X,)),
}


def draw(shape):
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    if not jnp.issubdtype(shape.dtype, jnp.floating):
        return jnp.ones(shape.shape, shape.dtype)
    rng = np.random.default_rng(shape.size)
    if len(shape.shape) < 2:
        return jnp.asarray(rng.uniform(0.5, 1, shape.shape), shape.dtype)  # variances are positive
    deviation = np.prod(shape.shape[:-1]) ** -0.5
    return jnp.asarray(deviation * rng.normal(size=shape.shape), shape.dtype)


def close(ours, theirs, tolerance=1e-5):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.isfinite(b).all()
        scale = np.max(np.abs(b), initial=1e-6)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_any_placement_has_the_values_of_the_function(name, seed, devices):
    fn, args = CASES[name]
    result = gopt.schedule(
        fn, *args, hardware=homogeneous(devices), method="brkga", evaluations=1, seed=seed
    )
    placed = result.apply()
    assert isinstance(placed, Staged)
    close(placed(*args), fn(*args))
    close(placed(*placed.place(*args)), fn(*args))
    for stage in placed.actions:
        if isinstance(stage, Stage):
            shapes = [
                jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in stage.program.inputs
            ]
            check_order(
                stage.program, gopt.apply.jit_ordered(stage.program).lower(*shapes).compile()
            )


@pytest.mark.parametrize("objective", ["peak_memory", "makespan"])
@pytest.mark.parametrize(
    ("name", "mode", "sizes"),
    [
        ("randwire", "forward", {"size": 64}),
        ("nasnet_a", "forward", {"cells": 1, "size": 64}),
        ("dlrm", "forward", {"rows": (100,) * 8}),
        ("rnnlm", "train_step", {"length": 3, "hidden": 64, "vocabulary": 100}),
        ("bert", "train_step", {"layers": 1, "length": 16, "vocabulary": 100}),
    ],
)
def test_models_on_four_devices(name, mode, sizes, objective):
    fn, shapes = getattr(WORKLOADS[name](**sizes), mode)()
    donated = (0, 1) if mode == "train_step" else ()
    result = gopt.schedule(
        fn,
        *shapes,
        hardware=MACHINE,
        objective=objective,
        evaluations=300,
        donate_argnums=donated,
    )
    placed = result.apply()
    args = jax.tree.map(draw, shapes)
    expected = jax.jit(fn)(*args)
    close(placed(*placed.place(*args)), expected, 1e-3)
    arguments = [0] * 4
    for on, leaf in zip(result.plan.device, jax.tree.leaves(shapes), strict=False):
        arguments[on] += leaf.size * leaf.dtype.itemsize
    for predicted, measured in zip(result.after.peak, placed.memory(), strict=True):
        assert abs(measured - predicted) <= 0.1 * predicted


def test_each_tensor_is_sent_once_to_each_device():
    fn, args = CASES["branches"]
    result = gopt.schedule(fn, *args, hardware=homogeneous(4), method="brkga", evaluations=1)
    sent = [a for a in result.apply().actions if isinstance(a, Send)]
    assert len(sent) > 5
    assert max(Counter((a.tensor, a.device) for a in sent).values()) == 1
    assert all(a.source != a.device for a in sent)


def test_a_stage_is_as_long_as_nothing_is_sent():
    fn, args = CASES["branches"]
    slow = homogeneous(2, bandwidth=1e-6)
    result = gopt.schedule(fn, *args, hardware=slow, method="heft")
    (stage,) = result.apply().actions
    assert len(stage.program.equations) == len(result.plan.groups)


class Watched:
    """A stage; what lives is counted while its results are there beside what it has read."""

    def __init__(self, compiled, count):
        self.compiled, self.count = compiled, count

    def __call__(self, *reads):
        made = self.compiled(*reads)
        self.count()
        return made


def test_memory_is_that_of_the_arrays_that_live(monkeypatch):
    """Between actions, what JAX says that each device holds is what the account says."""
    fn, args = CASES["branches"]
    result = gopt.schedule(fn, *args, hardware=homogeneous(4), method="brkga", evaluations=1)
    placed = result.apply()
    given = placed.place(*args)
    before = {id(array) for array in jax.live_arrays()} - {id(x) for x in given}
    most = [0] * 4
    put, first = jax.device_put, {device: k for k, device in enumerate(jax.devices())}

    def count():
        # Two arrays may be one buffer.
        live = {a.unsafe_buffer_pointer(): a for a in jax.live_arrays() if id(a) not in before}
        held = [0] * 4
        for array in live.values():
            (device,) = array.devices()
            held[first[device]] += array.nbytes
        most[:] = map(max, most, held)

    def watched(value, device):
        array = put(value, device)
        count()
        return array

    account = placed.memory()
    monkeypatch.setattr(jax, "device_put", watched)
    monkeypatch.setattr(placed, "_compiled", [Watched(c, count) for c in placed._compiled])
    placed(*given)
    # Inside stages little is needed but what they make.
    for counted, planned in zip(most, account, strict=True):
        assert 0.9 * planned < counted <= planned


def test_arrays_are_where_the_schedule_leaves_them():
    fn, args = CASES["gradient"]
    result = gopt.schedule(fn, *args, hardware="2xh100", method="brkga", evaluations=1)
    first, second, *_ = jax.devices()
    placed = result.apply([second, first])
    home = {}
    for op, index in enumerate(placed.traced.equations):
        if index >= 0:
            outs = placed.traced.program.equations[index].outvars
            home |= dict.fromkeys(outs, [second, first][placed.device[op]])
    found = jax.tree.leaves(placed(*args))
    for leaf, variable in zip(found, placed.traced.program.outputs, strict=True):
        assert leaf.devices() == {home[variable]}


def test_donated_arguments_are_deleted():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)

    w, x = jnp.ones((6, 6)), X
    result = gopt.schedule(step, w, x, hardware="2xh100", method="heft", donate_argnums=0)
    result.apply()(w, x)
    assert w.is_deleted()
    assert not x.is_deleted()


def test_one_device_may_stand_for_several_and_a_missing_one_is_named():
    fn, args = CASES["branches"]
    result = gopt.schedule(fn, *args, hardware="4xh100", method="brkga", evaluations=1)
    close(result.apply(4 * jax.devices()[:1])(*args), fn(*args))
    with pytest.raises(ValueError, match="device 3 is missing: expected 4 devices"):
        result.apply(jax.devices()[:3])


def test_bad_arguments_are_named():
    fn, args = CASES["unread"]
    placed = gopt.schedule(fn, *args, hardware="2xh100", method="heft").apply()
    with pytest.raises(ValueError, match="arguments have structure"):
        placed()
    with pytest.raises(ValueError, match=r"args\[0\] is float32\[4\], expected float32\[8,6\]"):
        placed(jnp.ones(4))
