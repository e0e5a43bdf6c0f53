"""Start-up of the experiments."""

import os
import platform
import subprocess
import sys

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


@pytest.mark.slow
def test_memory_that_is_freed_is_kept():
    """In a process of its own, a thread of which allocates, writes and frees again and again."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        pytest.skip("the allocator that `keep_memory` asks is that of glibc")
    code = """
import ctypes, resource, sys, threading
from experiments import common
if sys.argv[1] == "keep":
    assert common.keep_memory()
libc, size = ctypes.CDLL(None), 5 * 2**23  # two of which are larger than a heap of a thread
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def run():
    libc.malloc(size)
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = libc.malloc(size)
        libc.memset(block, 1, size)
        libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""
    keeps, leaves = (
        int(subprocess.check_output([sys.executable, "-c", code, how])) for how in ("keep", "leave")
    )
    assert keeps < 10 < leaves


def test_cells_are_shown_as_they_are(tmp_path, capsys):
    """Brackets are no markup of rich, and bars do not end cells of Markdown."""
    common.show("Rules", ("rule", "times"), [("parts of x[a|b]", 3)], tmp_path / "rules.md")
    assert "parts of x[a|b]" in capsys.readouterr().out
    assert r"| parts of x[a\|b] | 3 |" in (tmp_path / "rules.md").read_text()
