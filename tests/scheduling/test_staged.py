"""Functions in stages on several devices: values, transfers, and the memory of each device."""

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gopt
from gopt.cost.hardware import unit_rate_devices
from gopt.program.program import trace_program
from gopt.scheduling.staged import Staged
from gopt.scheduling.stages import Ledger, Send, Stage, Tensors, Transfer, segments
from gopt.workloads import WORKLOADS
from gopt.xla.buffers import unshared_graph
from gopt.xla.ordered import check_order

TABLE = np.linspace(0, 1, 48, dtype=np.float32).reshape(8, 6)
X = jnp.asarray(TABLE)

# Ops worth sending to another device.
MACHINE = unit_rate_devices(4, flop_rate=1e9, memory_bandwidth=1e9, launch=1e-6, bandwidth=1e10)


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
        assert isinstance(a, jax.Array) and a.dtype == jnp.asarray(b).dtype
        assert np.isfinite(b).all()
        scale = np.max(np.abs(b), initial=1e-6)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def stages(placed):
    return [action for action in placed.actions if isinstance(action.what, Stage)]


def beside(result, placed, args):
    """Bytes of each device beside the arguments, through XLA and by the model."""
    arguments = np.zeros(len(placed.devices), int)
    for on, leaf in zip(result.plan.device, jax.tree.leaves(args), strict=False):
        arguments[on] += leaf.size * leaf.dtype.itemsize
    return placed.memory - arguments, placed.predicted - arguments


@pytest.fixture(scope="module")
def placement_of():
    """Returns a case on some devices, as it was drawn; each is compiled once."""

    @cache
    def drawn(name, devices):
        fn, args = CASES[name]
        hardware = unit_rate_devices(devices)
        result = gopt.schedule(fn, *args, hardware=hardware, search="brkga", evaluations=1)
        return result.apply()

    return drawn


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_any_placement_has_the_values_of_the_function(name, devices, placement_of):
    fn, args = CASES[name]
    placed = placement_of(name, devices)
    assert isinstance(placed, Staged)
    close(placed(*args), fn(*args))
    close(placed(*placed.place(*args)), fn(*args))
    for what, compiled, _ in stages(placed):
        check_order(placed._tensors.program_of(what), compiled)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "sizes", "search"),
    [
        ("randwire", "forward", {"size": 64, "stages": 2, "nodes": 8}, "best"),
        ("squeezenet", "forward", {"size": 64}, "etf"),
        ("bert", "train_step", {"layers": 1, "length": 16, "vocabulary": 100}, "etf"),
    ],
)
def test_models_on_four_devices(name, mode, sizes, search):
    fn, shapes = getattr(WORKLOADS[name](**sizes), mode)()
    donated = (0, 1) if mode == "train_step" else ()
    result = gopt.schedule(
        fn,
        *shapes,
        hardware=MACHINE,
        search=search,
        evaluations=300,
        donate_argnums=donated,
    )
    placed = result.apply()
    args = jax.tree.map(draw, shapes)
    expected = jax.jit(fn)(*args)
    close(placed(*placed.place(*args)), expected, 1e-3)
    for on, needs in enumerate(placed.memory):
        assert abs(needs - placed.predicted[on]) <= 0.1 * placed.predicted[on]
        assert needs <= 1.01 * result.after.decision.peak[on]
    for needs, predicted in zip(*beside(result, placed, shapes), strict=True):
        assert abs(needs - predicted) <= 0.1 * predicted + 2**13  # small things in XLA's code
    cuts = segments(placed._tensors, placed._device, result.plan.transfers)
    assert len(stages(placed)) <= 2 * sum(not isinstance(cut, Send) for cut in cuts)


@pytest.mark.slow
def test_each_tensor_is_sent_once_to_each_device(placement_of):
    sent = [a.what for a in placement_of("branches", 4).actions if isinstance(a.what, Send)]
    assert len(sent) > 5
    assert max(Counter((a.tensor, a.device) for a in sent).values()) == 1
    assert all(a.source != a.device for a in sent)


def test_a_stage_is_as_long_as_nothing_is_sent():
    fn, args = CASES["branches"]
    slow = unit_rate_devices(2, bandwidth=1e-6)
    result = gopt.schedule(fn, *args, hardware=slow, search="heft")
    roomy = replace(result.plan, peak=(2 * result.plan.peak[0], 0))
    (stage,) = roomy.apply(fn, *args).actions
    assert len(stage.what.ops) == len(result.plan.groups)


class Watched:
    """A stage; what lives is counted while its results are there beside what it has read."""

    def __init__(self, compiled, count):
        self.compiled, self.count = compiled, count

    def __call__(self, *reads):
        made = self.compiled(*reads)
        self.count()
        return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["branches", "views", "gradient"])
def test_memory_is_that_of_the_arrays_that_live(name, placement_of, monkeypatch):
    """Between actions, what JAX says that each device holds is what the account says."""
    placed = placement_of(name, 4)
    given = placed.place(*CASES[name][1])
    mine = {id(x) for x in (*jax.tree.leaves(given), *placed._constants)}
    before = {id(array) for array in jax.live_arrays()} - mine
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

    monkeypatch.setattr(jax, "device_put", watched)
    watching = [a._replace(call=Watched(a.call, count)) if a.call else a for a in placed.actions]
    monkeypatch.setattr(placed, "actions", watching)
    placed(*given)
    # Inside stages little is needed but what they make.
    for counted, planned in zip(most, placed.memory, strict=True):
        assert 0.9 * planned <= counted <= planned


def test_arrays_are_where_the_schedule_leaves_them():
    fn, args = CASES["gradient"]
    result = gopt.schedule(fn, *args, hardware="2xh100", search="brkga", evaluations=1)
    first, second, *_ = jax.devices()
    placed = result.apply(devices=[second, first])
    made = [placed._tensors.made.index(v) for v in placed._program.outputs]
    home = [placed._device[placed._tensors.producer[tensor]] for tensor in made]
    for leaf, on in zip(jax.tree.leaves(placed(*args)), home, strict=True):
        assert leaf.devices() == {[second, first][on]}


def test_donated_arguments_are_deleted():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)

    for device in jax.devices()[:2]:  # where it is planned, and elsewhere
        w, x = jax.device_put(np.ones((6, 6), np.float32), device), jnp.array(TABLE)
        result = gopt.schedule(step, w, x, hardware="2xh100", search="heft", donate_argnums=0)
        result.apply()(w, x)
        assert w.is_deleted()
        assert not x.is_deleted()


def test_one_device_may_stand_for_several_and_a_missing_one_is_named():
    fn, args = CASES["branches"]
    result = gopt.schedule(fn, *args, hardware="4xh100", search="brkga", evaluations=1)
    close(result.apply(devices=4 * jax.devices()[:1])(*args), fn(*args))
    with pytest.raises(ValueError, match="device 3 is missing: expected 4 devices"):
        result.apply(devices=jax.devices()[:3])


def test_bad_arguments_are_named():
    fn, args = CASES["unread"]
    placed = gopt.schedule(fn, *args, hardware="2xh100", search="heft").apply()
    with pytest.raises(ValueError, match="arguments have structure"):
        placed()
    with pytest.raises(ValueError, match=r"args\[0\] is float32\[4\], expected float32\[8,6\]"):
        placed(jnp.ones(4))


@pytest.mark.slow
def test_stages_are_halved_until_they_fit():
    def fn(x, weights):
        made = [jnp.tanh(x @ w) @ w for w in weights]
        return [jnp.sum(y) for y in made], made[0]

    args = jnp.ones((64, 64)), [jnp.ones((64, 64))] * 8
    slow = unit_rate_devices(2, bandwidth=1e-6)
    plan = gopt.schedule(fn, *args, hardware=slow, search="heft").plan
    counts = []
    for peak in (2 * plan.peak[0], plan.peak[0] // 2, 0):
        placed = replace(plan, peak=(peak, 0)).apply(fn, *args)
        counts.append(len(placed.actions))
        close(placed(*args), fn(*args))
    kernels = [op for action in placed.actions for op in action.what.ops]
    assert counts == [1, len(kernels), len(kernels)]  # half is less than arguments and results
    assert kernels == sorted(kernels) and len(kernels) == len(plan.groups)


def test_what_a_ledger_holds():
    """A chain on device 0, whose first result is read on device 1, too."""

    def fn(x):
        y = jnp.tanh(x) @ x
        z = y @ x
        return z @ x, y @ y

    plan = gopt.schedule(fn, jnp.ones((8, 8)), hardware=unit_rate_devices(2), search="heft").plan
    program = trace_program(fn, jnp.ones((8, 8)))
    traced = unshared_graph(plan.kernels(program), {})
    names = [name.rsplit("/")[-1] for name in traced.names]
    assert names == ["args[0]", "tanh", "dot_general", "dot_general", "dot_general", "dot_general"]
    reads = [tensors for tensors in Tensors(traced).reads]
    last = next(op for op in (3, 4, 5) if reads[op] == [2])  # y @ y
    device = [0] * 6
    device[last] = 1
    moves = [Transfer(3, 2, 0, 1)]
    tensors = Tensors(traced)
    first, send, *others = segments(tensors, device, moves)
    assert first == (1, 2) and send == Send(2, 0, 1)
    assert sorted(others) == sorted([(last,), tuple(op for op in (3, 4, 5) if op != last)])
    ledger = Ledger(tensors, device, moves, 2)
    size = 8 * 8 * 4
    assert ledger.used == [size, 0]  # x
    stage = ledger.stage(first)
    assert (stage.reads, stage.makes) == ((0,), (2,))  # what tanh makes stays inside
    assert ledger.run(stage) == [] and ledger.used == [2 * size, 0]
    assert ledger.send(send) == [] and ledger.used == [2 * size, size]
    there = ledger.stage((last,))
    assert (there.device, there.reads, there.makes) == (1, (2,), (last,))
    assert ledger.run(there) == [(2, 1)] and ledger.used == [2 * size, size]
    (rest,) = [part for part in others if part != (last,)]
    assert ledger.run(ledger.stage(rest)) == [(2, 0)]  # x is not donated
    assert ledger.used == [2 * size, size]


@pytest.mark.slow
def test_empty_arrays():
    def fn(x, z):
        return (x @ z).sum(), z, z.sum(0)

    args = jnp.ones((4, 6)), jnp.ones((6, 0))
    for hardware in (None, "2xh100"):
        close(gopt.schedule(fn, *args, hardware=hardware, evaluations=20).apply()(*args), fn(*args))


def test_no_result_shares_a_buffer():
    """What is returned can be donated in the next call, as with `jax.jit`."""
    captured = jnp.ones((8, 6))

    def step(state, x):
        p, t = state
        new = 0.5 * p + jnp.tanh(t @ t.T) @ p
        return (new, new), x, captured

    x, state = jnp.array(TABLE), (jnp.array(TABLE), jnp.array(TABLE))
    result = gopt.schedule(step, state, x, hardware="2xh100", search="heft", donate_argnums=0)
    placed = result.apply()
    for _ in range(3):
        close(placed(jax.tree.map(jnp.copy, state), x), step(state, x))
        state, same, constant = placed(state, x)
        same.delete()
        constant.delete()
    assert not x.is_deleted() and not captured.is_deleted()


def test_captured_arrays_are_kept_as_they_were():
    table = np.ones((6, 6), np.float32)
    placed = gopt.schedule(lambda x: x @ table, X, hardware="2xh100", search="heft").apply()
    before = placed(X)
    table *= 0
    np.testing.assert_array_equal(placed(X), before)


def test_what_is_donated_is_passed_once():
    def fn(a, b):
        u = jnp.tanh(a @ a.T)
        return (jnp.tanh(u @ u) @ b).sum()

    result = gopt.schedule(fn, X, X, hardware="2xh100", search="heft", donate_argnums=0)
    placed, x = result.apply(), jnp.array(TABLE)
    with pytest.raises(ValueError, match="array 0 of the arguments is donated and passed twice"):
        placed(x, x)
    placed(x, X)
    with pytest.raises(ValueError, match="array 0 of the arguments was donated before"):
        placed(x, X)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_what_is_donated_lives_while_one_device_stands_for_two(seed):
    def fn(x, w):
        made = [jnp.tanh(x @ (w + k)) @ w for k in range(6)]
        return sum(made)

    args = jnp.array(TABLE), jnp.ones((6, 6))
    result = gopt.schedule(
        fn,
        *args,
        hardware=unit_rate_devices(2),
        search="brkga",
        evaluations=1,
        seed=seed,
        donate_argnums=(0, 1),
    )
    close(result.apply(devices=2 * jax.devices()[:1])(*args), fn(X, jnp.ones((6, 6))))
