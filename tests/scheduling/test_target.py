"""Machines that programs are compiled for, and verbs that compile for one that is described."""

import sys
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.cost.hardware import unit_rate_devices
from gopt.measure.timing import memory
from gopt.scheduling import api, front
from gopt.scheduling.target import Target, target_of, this_machine
from gopt.xla.applied import compile_for, shapes_on
from tests.scheduling.test_budget import arguments, check_values, step
from tests.scheduling.test_budget import schedule as schedule_within


@pytest.fixture
def described(monkeypatch):
    """Stands for a machine that is only described: the CPU, by a roofline."""
    hardware = unit_rate_devices(1, flop_rate=1e15, memory_bandwidth=1e14, launch=1e-9)
    target = Target("a described CPU", "cpu", jax.devices("cpu")[0], hardware)
    for module in (api, front):
        monkeypatch.setattr(module, "target_of", lambda name: target)
    return target


def schedule(budget, **options):
    return schedule_within(budget, **{"evaluations": 1000, **options})


def test_a_program_is_compiled_for_a_machine_that_is_described(described, tmp_path):
    result = schedule(0.5, target="it")
    assert "compiled for a described CPU, one chip; roofline with a tenth of the bytes" in str(
        result
    )
    assert result.report.fits(result.after)
    assert result.before.predicted < 1e-4  # s: by the roofline
    check_values(result.apply())
    result.save(tmp_path / "plan.json")
    check_values(gopt.load(tmp_path / "plan.json").apply(step, *arguments(), donate_argnums=0))


@pytest.mark.slow
def test_xla_may_order_the_kernels_itself(described, monkeypatch, tmp_path):
    monkeypatch.setattr("gopt.scheduling.budget.is_order_free", lambda target: True)
    result = schedule(0.5, target="it")
    free = result["recomputed, XLA's order"]
    assert free.decision.is_free
    assert free.memory.without_arguments < result.before.memory.without_arguments
    check_values(free.executable.function)
    chosen = [k for k, c in enumerate(result.candidates) if c is free]
    forced = type(result)(result.program, result.candidates, chosen[0], "", result.report)
    assert forced.plan.is_free
    forced.save(tmp_path / "plan.json")
    loaded = gopt.load(tmp_path / "plan.json").apply(step, *arguments(), donate_argnums=0)
    check_values(loaded)
    assert memory(loaded.lower(*arguments()).compile()) == free.memory


@pytest.mark.slow
@pytest.mark.parametrize("is_free", [False, True])
def test_a_front_for_a_machine_that_is_described(described, monkeypatch, is_free):
    monkeypatch.setattr(front, "is_order_free", lambda target: is_free)
    result = gopt.memory_front(
        step, *arguments(), points=2, evaluations=200, target="it", progress=False
    )
    assert all(point.report.target is described for point in result.points)
    check_values(result.points[-1].apply())
    segments = [p for p in (*result.points, *result.others) if p.after.name == "segments"]
    assert len(segments) == is_free
    assert all(point.after.decision.is_free for point in segments)


def test_shapes_are_on_the_described_device(described):
    args = [1.0, np.ones(3), jax.ShapeDtypeStruct((2,), jnp.int32), jax.random.key(0)]
    shapes = shapes_on(described.device, args)
    assert [(x.shape, x.dtype) for x in shapes] == [
        *[((), jnp.float32), ((3,), jnp.result_type(float)), ((2,), jnp.int32)],
        ((), args[3].dtype),
    ]
    assert all(x.sharding.device_set == {described.device} for x in shapes)
    assert shapes[0].weak_type


@pytest.mark.parametrize(("platform", "rate"), [("gpu", 494e12), ("tpu", 197e12)])
def test_this_machine_has_the_roofline_of_its_kind(monkeypatch, platform, rate):
    assert this_machine().hardware is None
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert this_machine().hardware.flop_rate == rate
    assert this_machine().platform == platform


def test_kernels_are_timed_on_this_machine_alone(described):
    with pytest.raises(ValueError, match="cost is 'measured': expected 'model' beside target="):
        schedule(0.5, target="it", cost="measured")


def test_without_a_budget_a_target_is_refused():
    with pytest.raises(ValueError, match="target is given: expected none without memory="):
        gopt.schedule(step, *arguments(), target="tpu v5e:2x2")


@pytest.mark.parametrize("name", ["", "tpu", "tpu v5e", "tpu v9:2x2", "TPU v5e:2x2", "H100", 3])
def test_names_that_are_no_machine_are_refused(name):
    with pytest.raises(ValueError, match=r"target is .*: expected 'h100', or 'tpu' with a version"):
        schedule(0.5, target=name)


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("libtpu", "tpu v5e:2x2", "tpu"), ("jax_plugins.xla_cuda12", "h100", "gpu")],
)
def test_without_the_extra_the_message_names_it(monkeypatch, module, name, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'gopt-jax\[{extra}\]'"):
        target_of(name)


def test_a_topology_that_does_not_exist_is_refused():
    pytest.importorskip("libtpu")
    with pytest.raises(ValueError, match="target is 'tpu v5e:2by2': "):
        target_of("tpu v5e:2by2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "platform"),
    [("libtpu", "tpu v5e:2x2", "tpu"), ("jax_plugins.xla_cuda12", "h100", "gpu")],
)
def test_a_program_for_a_machine_needs_only_its_compiler(module, name, platform):
    pytest.importorskip(module)
    rows = 2**17
    result = gopt.schedule(
        *(step, *arguments(rows)),
        memory=0.6,
        target=name,
        evaluations=1000,
        donate_argnums=0,
        progress=False,
    )
    assert result.plan.platform == platform
    assert result.report.fits(result.after)
    assert result.after.memory.total < 0.7 * result.before.memory.total
    check_values(result.apply(), rows)


@pytest.mark.parametrize("is_described", [False, True])
def test_the_cache_on_disk_is_quiet_for_described_machines(is_described):
    texts = "Error reading persistent compilation cache entry for 'jit_f': so", "another warning"

    def compile_it():
        for text in texts:
            warnings.warn(text, stacklevel=2)

    function = SimpleNamespace(lower=lambda *args: SimpleNamespace(compile=compile_it))
    with pytest.warns(UserWarning) as heard:
        compile_for(jax.devices()[0] if is_described else None, function, (jnp.ones(3),))
    assert [str(each.message) for each in heard] == list(texts[is_described:])
