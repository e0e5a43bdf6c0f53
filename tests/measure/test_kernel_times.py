"""Times of kernels: each is measured once, kept, and nothing is lost."""

import itertools
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gopt.cost.fusion.cost import kernels_of
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.fusion.programs import groups_of, members
from gopt.graph.tracing import from_program
from gopt.measure import isolated_kernel, timing
from gopt.measure.kernel_times import KernelTimes
from gopt.program.program import trace_program
from gopt.xla.grouping import group
from tests.measure.row_files import add_row, conditions


def layers(x):
    for _ in range(3):
        x = jnp.tanh(x) * 2 + 1
    return x


def parts(fn, *args):
    """All ops apart, and all that may be fused."""
    traced = from_program(trace_program(fn, *args))
    problem = prepare_fusion(traced.graph, unit_rate_devices(1))
    rows = len(problem.compute)
    return traced.program, [
        groups_of(traced, problem, members(kernels_of(problem, np.full(rows, fuse)), problem))
        for fuse in (False, True)
    ]


X = jnp.ones((64, 64))


def test_kernels_that_compute_the_same_are_timed_once():
    program, (apart, together) = parts(layers, X)
    times = KernelTimes(rounds=1)
    first = times.of(program, apart)
    assert len(apart) == 9
    assert len(times.seconds) == 3
    assert times.of(program, apart) == first > 0
    times.of(program, together)
    assert len(times.seconds) == 4


def test_times_are_kept_in_a_file(tmp_path):
    program, (apart, together) = parts(layers, X)
    path = tmp_path / "times.sqlite"
    times = KernelTimes(path, rounds=1)
    seconds = times.of(program, apart)
    again = KernelTimes(path, rounds=1)
    assert again.seconds == times.seconds
    assert again.of(program, apart) == seconds
    again.of(program, together)
    assert KernelTimes(path, rounds=1).seconds == again.seconds


def test_a_kernel_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    def refuse(x):
        return jax.pure_callback(lambda x: 1 / 0, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    program, (apart, _) = parts(lambda x: jnp.tanh(refuse(x + 1)), X)
    path = tmp_path / "times.sqlite"
    times = KernelTimes(path, rounds=1)
    assert times.of(program, apart) == math.inf
    (failure,) = times.failures.values()
    assert "ZeroDivisionError" in failure
    assert sum(map(math.isfinite, times.seconds.values())) == 2
    again = KernelTimes(path, rounds=1)
    assert again.failures == times.failures
    assert again.of(program, apart) == math.inf


def test_a_kernel_that_takes_too_long_is_not_timed_again():
    program, (apart, _) = parts(lambda x: x @ x, X)
    times = KernelTimes(longest=1e-9)
    assert times.of(program, apart) == math.inf
    assert all("one call takes" in failure for failure in times.failures.values())


def test_kernels_of_configurations_run_in_interleaved_rounds(monkeypatch):
    """On a machine that is faster from round to round."""
    log, names = [], itertools.count()

    def timed(function, calls, *, longest=math.inf):
        name = next(names)  # the first is what a call takes

        def measure():
            log.append(name)
            return (1.0 + 4 * name) * (6 - log.count(name))

        return measure

    monkeypatch.setattr(isolated_kernel, "timed", timed)
    program, configurations = parts(layers, X)
    times = KernelTimes(rounds=5)
    apart, together = times.of_each(program, configurations)
    assert list(times.seconds.values()) == pytest.approx([1, 2, 3, 4])
    assert (apart, together) == pytest.approx((3 * (1 + 2 + 3), 4))
    np.testing.assert_array_equal(times.of_each(program, configurations), [apart, together])
    assert log == 5 * [0, 1, 2, 3, 4]  # tanh, multiply, add, and all in one
    assert times.of_each(program, []).shape == (0,)


def test_a_kernel_that_fails_in_a_later_round_is_recorded(monkeypatch):
    timed, kernels = isolated_kernel.timed, []

    def fails_later(function, calls, *, longest=math.inf):
        run = timed(function, calls, longest=longest)
        kernels.append(run)
        if len(kernels) != 2:
            return run
        left = iter([run])
        return lambda: next(left, lambda: 1 / 0)()

    monkeypatch.setattr(isolated_kernel, "timed", fails_later)
    monkeypatch.setattr(jax.errors, "JaxRuntimeError", ZeroDivisionError)
    program, (apart, _) = parts(layers, X)
    times = KernelTimes(rounds=3)
    assert times.of(program, apart) == math.inf
    assert list(times.failures.values()) == ["ZeroDivisionError: division by zero"]
    assert sum(map(math.isfinite, times.seconds.values())) == 2


def test_bad_settings_and_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="rounds is 0"):
        KernelTimes(rounds=0)
    with pytest.raises(ValueError, match="longest is -1"):
        KernelTimes(longest=-1)
    path = tmp_path / "times.sqlite"
    KernelTimes(path, rounds=3)._add("a", 1.0)
    with pytest.raises(ValueError, match="has times of kernels with rounds = 3, expected 12"):
        KernelTimes(path)
    for number, bad in enumerate(
        [
            '{"seconds": null}',
            '{"seconds": "x"}',
            '{"seconds": null, "failure": 1}',
            '{"seconds": -1}',
            '{"seconds": NaN}',
            "[]",
            b"bytes",
        ]
    ):
        path = tmp_path / f"{number}.sqlite"
        KernelTimes(path, rounds=3)
        add_row(path, bad)
        with pytest.raises(ValueError, match=r"row 1 is .*: expected one of times of kernels"):
            KernelTimes(path, rounds=3)


def test_a_file_says_what_its_times_depend_on(tmp_path, monkeypatch):
    path = tmp_path / "times.sqlite"
    monkeypatch.setattr(timing, "processor", lambda: "this one")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 7}, raising=False)
    KernelTimes(path)._add("a", 1.0)
    stored = conditions(path)
    assert (stored["version"], stored["processor"], stored["cores"]) == (5, "this one", 3)
    monkeypatch.setattr(timing, "processor", lambda: "another")
    with pytest.raises(ValueError, match="processor = 'this one', expected 'another'"):
        KernelTimes(path)


def test_where_cores_of_a_process_are_not_told_all_count(tmp_path, monkeypatch):
    path = tmp_path / "times.sqlite"
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 77)
    KernelTimes(path)
    assert conditions(path)["cores"] == 77


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder"):
        KernelTimes(tmp_path)


def test_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(ValueError, match="the backend is gpu"):
        KernelTimes()


def test_random_keys_go_from_kernel_to_kernel():
    program, (apart, _) = parts(lambda x: jax.random.uniform(jax.random.key(0), x.shape) + x, X)
    times = KernelTimes(rounds=1)
    assert 0 < times.of(program, apart) < 1
    assert not times.failures


def test_what_is_read_twice_is_read_once():
    square, (apart, _) = parts(lambda x, y: x * x, X, X)
    product, (other, _) = parts(lambda x, y: x * y, X, X)
    times = KernelTimes(rounds=1)
    times.of(square, apart)
    times.of(product, other)
    assert len(times.seconds) == 2


def product_of(rows):
    """A program of one kernel, whose second argument has rows of 256 B."""
    w = jax.ShapeDtypeStruct((rows, 64), jnp.float32)
    return parts(lambda x, w: w @ x, X, w)


@pytest.mark.parametrize(
    ("rows", "between", "arrays"),
    [
        (2**6 - 1, math.inf, 1),  # small
        (2**6, math.inf, 64),  # of 16 KiB each, 1 MiB in all
        (2**6, 6 * 2**14, 6),
        (2**6, 5 * 2**14 - 1, 5),
        (2**6, 2**14, 1),  # all that is read between two reads of it
        (2**6, 0, 1),
        (2**11, math.inf, 2),
        (2**12, math.inf, 1),  # larger than caches
    ],
)
def test_what_is_cold_is_another_array_from_copy_to_copy(rows, between, arrays, monkeypatch):
    monkeypatch.setattr(isolated_kernel, "_MEMORY", 2**20)
    program, (apart, _) = product_of(rows)
    (kernel,) = group(program, apart).equations
    place = kernel.invars.index(program.inputs[1])
    cold = isolated_kernel.cold_of(kernel, {program.inputs[1]}, between)
    assert cold == (
        isolated_kernel.Cold((place,), arrays) if arrays > 1 else isolated_kernel.Cold()
    )
    function, calls = isolated_kernel.copies(kernel, cold, {})
    if arrays == 1:
        ((first, second),) = calls
        assert {first.shape, second.shape} == {X.shape, (rows, 64)}
        return
    assert all(x is calls[0][0] for x, *_ in calls)
    numbers = [id(w) for _, *own in calls for w in own]
    assert len(numbers) == math.lcm(arrays, isolated_kernel.COPIES)
    assert len(set(numbers)) == arrays and numbers == numbers[:arrays] * (len(numbers) // arrays)
    x, *own = calls[0]
    own = [k * w for k, w in enumerate(own, 1)]  # each copy reads its own
    first = sum(float((w @ x)[0, 0]) for w in own)
    assert float(function(x, *own)) == pytest.approx(first, rel=1e-5)


def test_copies_that_read_arrays_of_one_shape_read_different_ones(monkeypatch):
    monkeypatch.setattr(isolated_kernel, "_MEMORY", 2**17)
    program, _ = parts(lambda x, v, w: x * v - w, *3 * [X])
    *_, kernel = group(program, [tuple(range(len(program.equations)))]).equations
    cold = isolated_kernel.cold_of(kernel, set(program.inputs[1:]), math.inf)
    assert cold.arrays == 4
    function, ((x, *own),) = isolated_kernel.copies(kernel, cold, {})
    assert len(set(map(id, (x, *own)))) == 9
    own = [k * w for k, w in enumerate(own, 1)]
    assert float(function(x, *own)) == pytest.approx(
        sum(float((x * v - w)[0, 0]) for v, w in zip(own[::2], own[1::2], strict=True)), rel=1e-5
    )
    times = KernelTimes(rounds=1)
    times.of(program, [tuple(range(len(program.equations)))], cold=[1, 2])
    assert all(map(math.isfinite, times.seconds.values()))


def test_calls_are_timed_in_rotation(monkeypatch):
    """By a clock that has moved 1 ms after each."""
    log = []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: 1e-3 * len(log))
    measure = isolated_kernel.timed(log.append, [["a"], ["b"], ["c"]])
    assert log == ["a", "b"]  # compiled, and timed once
    assert measure() == pytest.approx(1e-3) and measure() == pytest.approx(1e-3)
    assert log == ["a", "b", "c", "a", "b", "c"]  # 2 ms at least in a round
    with pytest.raises(TimeoutError, match="one call takes"):
        isolated_kernel.timed(log.append, [["a"], ["b"], ["c"]], longest=1e-4)
    assert len(log) == 8


def test_kernels_with_cold_inputs_are_others(monkeypatch):
    monkeypatch.setattr(isolated_kernel, "_MEMORY", 2**20)
    times = KernelTimes(rounds=1)
    for rows, kernels in ((2**6 - 1, 1), (2**6, 4)):  # 16 KiB, and a little less
        program, (apart, _) = product_of(rows)
        times.of(program, apart)
        times.of(program, apart, cold=[1])
        times.of(program, apart, cold=[1], bytes_between=2**15)
        assert len(times.seconds) == kernels
    told = [text.partition(" with ")[2] for text in times.seconds]
    assert told == ["", "", "64 of [0] in rotation", "2 of [0] in rotation"]
    with pytest.raises(ValueError, match=r"cold has 2, expected 0\.\.1"):
        times.of(program, apart, cold=[2])
    for bad in (-1, math.nan):
        with pytest.raises(ValueError, match=f"bytes_between is {bad}"):
            times.of(program, apart, cold=[1], bytes_between=bad)


def test_loops_that_may_not_end_are_not_run():
    def fn(n, x):
        odd = lax.while_loop(lambda s: s[0] != 0, lambda s: (s[0] - 2, 2 * s[1]), (n, x))[1]
        return jnp.tanh(odd) * x

    program, (apart, together) = parts(fn, jnp.int32(1), X)
    times = KernelTimes(rounds=1)
    for each in (apart, together):
        assert 0 < times.of(program, each) < 1
    assert [seconds for text, seconds in times.seconds.items() if "while" in text] == [0.0]
