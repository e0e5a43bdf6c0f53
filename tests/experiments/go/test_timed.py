"""Schedules that are timed on the devices at hand, beside the model."""

import json
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from experiments.go.studies import timed
from gopt.cost.hardware import check_hardware, unit_rate_devices
from gopt.measure.timing import Times
from gopt.workloads.cases import Case, floats
from gopt.workloads.recommendation.towers import towers

pytestmark = pytest.mark.slow

TOY = partial(towers, batch=4, groups=3, width=4)


def training():
    """A step that consumes what it replaces, as those of models do."""

    def step(w, x):
        return jax.tree.map(lambda p, g: p - g, w, jax.grad(lambda w: ((x @ w) ** 2).sum())(w))

    return Case(step, (floats(4, 4), floats(3, 4)), (0,))


SETTINGS: dict[str, Any] = {
    "models": ("toy", "step"),
    "methods": ("heft",),
    "devices": 2,
    "repeats": 6,
}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(timed.MODELS, "toy", TOY)
    monkeypatch.setitem(timed.MODELS, "step", training)


def test_a_schedule_is_timed_beside_what_the_model_says(tmp_path, monkeypatch):
    links = {"flop_rate": 1e9, "memory_bandwidth": 1e9, "latency": 1e-7, "bandwidth": 1e9}
    machine = unit_rate_devices(2, launch=1e-5, capacity=1e9, **links)
    monkeypatch.setattr(timed, "machine", lambda devices: machine)
    timed.main(timed.Settings(**SETTINGS, folder=tmp_path))
    row, other = json.loads((tmp_path / "timed.json").read_text())
    assert [one["model"] for one in (row, other)] == ["toy", "step"]
    assert other["difference"] < 1e-5 and row["method"] == "heft"
    assert row["stages"] >= 2  # both devices have some
    assert 0 < row["predicted"] < 1
    assert row["alone"] > 0 and row["measured"] > 0
    low, middle, high = (row["ratio"][k] for k in (1, 0, 2))
    assert 0 < low <= middle <= high < np.inf
    assert row["difference"] < 1e-5
    shown = (tmp_path / "table.md").read_text()
    assert f"{row['predicted']:.2f}" in shown
    assert "1 Gflop/s" in shown and "10.0 µs a kernel" in shown


def test_the_machine_is_what_was_measured(monkeypatch):
    took = {"rate": 0.5, "bandwidth": 0.25, "launch": 0.02, "latency": 1e-3, "link": 0.101}
    monkeypatch.setattr(
        timed,
        "time_interleaved",
        lambda functions, repeats: {
            k: Times(np.full(3, 9.0), np.array([took[k], 2.0])) for k in functions
        },
    )
    found = timed.machine(jax.devices()[:3])
    check_hardware(found)
    np.testing.assert_allclose(found.flop_rate, [2 * 1024**3 / 0.5] * 3)
    np.testing.assert_allclose(found.memory_bandwidth, [2 * 2**24 / 0.25] * 3)
    np.testing.assert_allclose(found.launch, [1e-4] * 3)
    np.testing.assert_allclose(found.capacity, [timed.CAPACITY] * 3)
    assert found.latency[0, 1] == pytest.approx(1e-3)
    assert found.bandwidth[2, 0] == pytest.approx(2**24 / 0.1)


def test_what_is_measured_sends_arrays_from_the_first_device_to_the_last(monkeypatch):
    """All that is timed runs, and where it should."""
    ends = {}

    def once(functions, repeats):
        for name, function in functions.items():
            (ends[name],) = function().devices()
        return {name: Times(np.ones(1), np.ones(1)) for name in functions}

    monkeypatch.setattr(timed, "time_interleaved", once)
    timed.machine(jax.devices()[:3])
    here, there = jax.devices()[0], jax.devices()[2]
    assert ends == {
        **dict.fromkeys(("rate", "bandwidth", "launch"), here),
        **dict.fromkeys(("latency", "link"), there),
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"models": ("VGG",)}, "models has 'VGG'"),
        ({"methods": ("best", "worst")}, "methods has 'worst'"),
        ({"devices": 1}, "there are 1 devices: expected 2 at least"),
    ],
)
def test_settings_are_checked(changed, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        timed.main(timed.Settings(**SETTINGS | changed, folder=tmp_path))
