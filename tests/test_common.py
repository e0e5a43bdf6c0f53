"""Start-up of the experiments."""

import os

import jax
import pytest

from experiments import common


@pytest.fixture
def updates(monkeypatch):
    """What `start` sets, without setting it: JAX has started already."""
    made = {}
    monkeypatch.setattr(jax.config, "update", made.__setitem__)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return made


def test_a_device_for_each_core_that_the_process_may_use(updates, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 6}, raising=False)
    common.start()
    assert updates == {"jax_num_cpu_devices": 3}


def test_a_device_for_each_core_where_processes_are_not_bound(updates, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    common.start()
    assert updates == {"jax_num_cpu_devices": 64}


def test_as_many_devices_as_asked_for(updates):
    common.start(5)
    assert updates == {"jax_num_cpu_devices": 5}
