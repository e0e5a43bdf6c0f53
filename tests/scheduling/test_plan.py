"""Plans that are saved, loaded and carried out again."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.cost.hardware import unit_rate_devices
from gopt.decisions import load
from gopt.measure.timing import memory
from gopt.program.hashing import fingerprint
from gopt.program.program import trace_program
from tests.scheduling.test_on_this_device import S, W, wired
from tests.tiers import slow

X = jnp.linspace(0, 1, 64).reshape(8, 8)


def branches(x, scale=1.0):
    """Each of many products reads one of a few: in this order all of the few are kept."""
    made = [jnp.tanh(x @ (x + k)) @ x for k in range(6)]
    last = [(scale * a) @ a for a in made]
    return sum(last[1:], last[0])


def loop(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ x), c.sum()), x, length=3)


@pytest.mark.parametrize("fn", [loop, *slow(branches)])
@pytest.mark.parametrize("hardware", [unit_rate_devices(1), unit_rate_devices(2)])
def test_a_plan_comes_back_from_its_file_and_runs(tmp_path, fn, hardware):
    settings = {"hardware": hardware, "search": "brkga", "evaluations": 1, "max_trips": 3}
    result = gopt.schedule(fn, X, **settings)
    result.save(tmp_path / "plan.json")
    again = load(tmp_path / "plan.json")
    assert again == result.plan
    assert repr(again).startswith("<SchedulePlan of ") and "\n" not in repr(again)
    function = again.apply(fn, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), function(X), fn(X))


@pytest.mark.slow
def test_a_plan_needs_the_memory_that_was_confirmed():
    result = gopt.schedule(wired, S, [W] * 20, search="depth_first")
    assert result.plan.options is None
    found = memory(result.plan.apply(wired, S, [W] * 20).lower(S, [W] * 20).compile())
    assert found == result.after.memory


def test_xlas_own_program_is_a_plan_too(tmp_path):
    result = gopt.schedule(jnp.sin, X, search="depth_first")
    assert result.after.name == "XLA"
    result.save(tmp_path / "plan.json")
    function = load(tmp_path / "plan.json").apply(jnp.sin, X)
    assert function.lower(X).as_text() == jax.jit(jnp.sin).lower(X).as_text()
    device = jax.devices()[3]
    assert result.plan.apply(jnp.sin, X, devices=[device])(np.asarray(X)).devices() == {device}
    with pytest.raises(ValueError, match="device 0 is missing"):
        result.plan.apply(jnp.sin, X, devices=[])
    with pytest.raises(ValueError, match=r"devices\[0\] is 'cpu': expected a device of JAX"):
        result.plan.apply(jnp.sin, X, devices=["cpu"])
    with pytest.raises(ValueError, match="the plan is for the kernels of abacus"):
        replace(result.plan, platform="abacus").apply(jnp.sin, X)


def test_a_plan_of_another_program_is_refused():
    plan = gopt.schedule(branches, X, hardware="2xh100", search="heft").plan
    for changed in (lambda x: branches(x, 2.0), lambda x: branches(x)[0], jnp.sin):
        with pytest.raises(ValueError, match="the plan is of another program"):
            plan.apply(changed, X)
    with pytest.raises(ValueError, match="the plan is of another program"):
        plan.apply(branches, X[:4, :4])


def test_fingerprints_are_those_of_equations():
    def other(y):
        return loop(y)

    def custom(x):
        return jax.lax.scan(lambda c, _: (jax.nn.relu(c), None), x, length=2)[0]

    def mark(fn, *args, **kwargs):
        return fingerprint(trace_program(fn, *args, **kwargs))

    def named(name):
        def inner(c):
            return jnp.sin(c)

        inner.__name__ = name
        return lambda x: jax.lax.scan(lambda c, _: (jax.jit(inner)(c), None), x, length=2)[0]

    assert mark(loop, X) == mark(other, X)
    assert mark(named("a"), X) == mark(named("b"), X)
    assert mark(custom, X) == mark(lambda x: custom(x), X)
    different = [
        mark(loop, X),
        mark(loop, X, donate_argnums=0),
        mark(loop, X[:4, :4]),
        mark(lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c @ x), c.sum()), x, length=4), X),
        mark(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c @ x), c.sum()), x, length=3), X),
    ]
    assert len(set(different)) == len(different)


def test_files_that_are_no_plans_are_refused(tmp_path):
    path = tmp_path / "plan.json"
    for text in ("", "[]", "{}", '{"format": 0}', '{"format": 2}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not a plan of gopt"):
            load(path)
    path.write_text('{"format": 2, "verb": "guess"}')
    with pytest.raises(
        ValueError, match="verb is 'guess': expected one of schedule, fuse, rewrite"
    ):
        load(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What a plan for two devices is in its file."""
    path = tmp_path_factory.mktemp("saved") / "plan.json"
    machine = unit_rate_devices(2)
    gopt.schedule(branches, X, hardware=machine, search="brkga", evaluations=1).save(path)
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device", lambda device: [*device, 0], r"the plan has devices for \d+ ops: expected"),
        ("device", [0, 7], r"is not a plan of gopt.*device\[1\] is 7: expected a whole .* in 0..1"),
        ("groups", lambda groups: [[99], *groups[1:]], r"groups\[0\] is \(99,\)"),
        ("groups", lambda groups: groups[::-1], "reads a"),
        ("groups", [[0]], "is not a plan of gopt.*workspace has"),
        ("groups", 3, "is not a plan of gopt"),
        ("peak", [], "is not a plan of gopt.*peak is empty"),
        ("max_trips", "x", "is not a plan of gopt"),
        ("transfers", [[1, 99, 0, 1]], r"transfers\[0\] is \(1, 99, 0, 1\)"),
        ("transfers", [], "reads tensor"),
        ("transfers", lambda sent: sent[::-1], r"transfers\[1\] is .*: expected the next transfer"),
        (
            "transfers",
            lambda sent: [*sent, sent[-1]],
            r"transfers\[\d+\] is transfers\[\d+\] again",
        ),
        ("transfers", lambda sent: [[*sent[0][:2], 5, sent[0][3]]], "has no such output"),
        ("options", 5, "is not a plan of gopt.*options is 5"),
        ("is_free", True, "is_free is true: expected false for several devices"),
        ("is_free", 1, "is not a plan of gopt.*is_free is 1"),
        ("peak", [-1, 5], r"is not a plan of gopt.*peak\[0\] is -1: expected a whole"),
        ("platform", "abacus", "the plan is for the kernels of abacus, not of cpu"),
    ],
)
def test_files_with_a_wrong_field_are_refused(tmp_path, saved, field, value, message):
    path = tmp_path / "plan.json"
    value = value(saved[field]) if callable(value) else value
    path.write_text(json.dumps({**saved, field: value}))
    with pytest.raises(ValueError, match=message):
        load(path).apply(branches, X)


def test_a_plan_for_one_device_runs_where_it_is_told():
    result = gopt.schedule(branches, X, hardware=unit_rate_devices(1), search="depth_first")
    device = jax.devices()[2]
    found = result.apply(devices=[device])(np.asarray(X))
    assert found.devices() == {device}
    np.testing.assert_allclose(found, branches(X), rtol=1e-5)
    with pytest.raises(ValueError, match="device 0 is missing"):
        result.apply(devices=[])
    with pytest.raises(ValueError, match="devices are given"):
        gopt.schedule(branches, X, search="depth_first").apply(devices=[device])
