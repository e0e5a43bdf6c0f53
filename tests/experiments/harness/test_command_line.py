"""Start-up of the experiments."""

import dataclasses
import importlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from experiments.harness import command_line, tables


@pytest.fixture
def updates(monkeypatch):
    """Options that `start` sets, without setting them: JAX has started already."""
    made = {}
    monkeypatch.setattr(jax.config, "update", made.__setitem__)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return made


def test_a_device_for_each_core_that_the_process_may_use(updates, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 6}, raising=False)
    command_line.start()
    assert updates == {"jax_num_cpu_devices": 3}


def test_a_device_for_each_core_where_processes_are_not_bound(updates, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    command_line.start()
    assert updates == {"jax_num_cpu_devices": 64}


def test_as_many_devices_as_asked_for(updates):
    command_line.start(5)
    assert updates == {"jax_num_cpu_devices": 5}


@pytest.mark.slow
@pytest.mark.parametrize(("heaps", "size"), [(None, 5 * 2**23), (1, 2**28)])
def test_memory_that_is_freed_is_kept(heaps, size):
    """In a process of its own, a thread of which allocates, writes and frees again and again."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        pytest.skip("`keep_memory` sets up glibc's allocator, which this machine lacks")
    code = """
import ctypes, resource, sys, threading
from experiments.harness import command_line
if sys.argv[1] == "keep":
    assert command_line.keep_memory(heaps=HEAPS)
libc, size = ctypes.CDLL(None), SIZE  # two of which are larger than a heap of a thread
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
    code = code.replace("HEAPS", str(heaps)).replace("SIZE", str(size))
    keeps, leaves = (
        int(subprocess.check_output([sys.executable, "-c", code, how])) for how in ("keep", "leave")
    )
    assert keeps < 10 < leaves


def test_cells_are_shown_as_they_are(tmp_path, capsys):
    """Brackets are no markup of rich, and bars do not end cells of Markdown."""
    tables.show("Rules", ("rule", "times"), [("parts of x[a|b]", 3)], tmp_path / "rules.md")
    assert "parts of x[a|b]" in capsys.readouterr().out
    assert r"| parts of x[a\|b] | 3 |" in (tmp_path / "rules.md").read_text()


MODULES = (
    *("apply", "fuse", "fused_time", "go", "large"),
    *("go.studies.ablations", "go.studies.timed", "go.studies.validate"),
    *("prediction", "regal", "rewrite", "rewrite.generating"),
    *("rewrite.gpu", "rewrite.searching", "throughput", "xrlflow", "xrlflow.ablation"),
    *("xrlflow.pretraining", "xrlflow.shapes", "xrlflow.speed", "local_advantage"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_name_that_is_not_known_is_a_tidy_error_that_lists_the_others(name, capsys, monkeypatch):
    module = importlib.import_module(f"experiments.{name}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"experiments.{name}.__main__")
    fields = [f for f in dataclasses.fields(module.Settings) if "choices" in f.metadata]
    fields = fields or [f for f in dataclasses.fields(module.Settings) if f.name == "split"]
    for field in fields:
        option = f"--{field.name.replace('_', '-')}"
        needed = {"rewrite.gpu": ["--target", "x"]}.get(name, [])
        monkeypatch.setattr(sys, "argv", ["it", *needed, option, "foo"])
        with pytest.raises(SystemExit) as stopped:
            command_line.run(lambda _: None, module.Settings, module.__doc__)
        assert stopped.value.code
        printed = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert f"invalid choice 'foo' for argument '{option}'" in printed
        assert "Expected one of (" in printed


@dataclasses.dataclass(frozen=True)
class Few(command_line.Settings):
    """Settings of nothing.

    Attributes:
      names: some names.
      count: a number.
      sizes: some numbers.
    """

    names: tuple[str, ...] = command_line.choice(("a", "b"))
    count: int = command_line.at_least(2, 3)
    sizes: tuple[int, ...] = command_line.at_least(1, (1, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("a", "c")}, "names has 'c': expected some of a, b"),
        ({"count": 1}, "count is 1: expected 2 at least"),
        ({"sizes": (1, 0)}, r"sizes is \(1, 0\): expected numbers, 1 at least"),
        ({"sizes": ()}, r"sizes is \(\): expected numbers, 1 at least"),
    ],
)
def test_settings_are_checked_as_their_fields_say(changes, message):
    assert Few().names == ("a", "b")
    with pytest.raises(command_line.UsageError, match=message):
        Few(**changes)


def test_an_experiment_is_run_with_what_the_command_line_says(updates, monkeypatch, capsys):
    given = []
    monkeypatch.setattr(sys, "argv", ["it", "--names", "b", "--count", "5"])
    command_line.run(given.append, Few, "Some words.", devices=7)
    assert given == [Few(names=("b",), count=5)] and updates == {"jax_num_cpu_devices": 7}
    assert Few.__annotations__["names"] == tuple[str, ...]  # as before

    def refuse(settings):
        raise command_line.UsageError("it cannot be so")

    with pytest.raises(SystemExit, match=r"python -m .*: it cannot be so"):
        command_line.run(refuse, Few, "Some words.")
    for wrong in (["--count", "1"], ["--names", "c"]):
        monkeypatch.setattr(sys, "argv", ["it", *wrong])
        with pytest.raises(SystemExit):
            command_line.run(given.append, Few, "Some words.")
    assert len(given) == 1


def add(a, b):
    return a + b, os.getpid()


@pytest.mark.slow
def test_a_call_apart_has_a_process_of_its_own():
    found, process = command_line.apart(add, 1, 2, cached=False)
    assert found == 3 and process != os.getpid()
    assert command_line.peak_bytes() > 2**20


@pytest.mark.slow
def test_a_call_apart_ends_with_its_parent(tmp_path):
    script = (
        "import sys; from experiments.harness.command_line import apart; "
        "from tests.measure.worker_functions import busy; apart(busy, sys.argv[1])"
    )
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", script, begun]
    parent = subprocess.Popen(command, cwd=Path(__file__).parents[3], stderr=subprocess.PIPE)
    while not begun.exists():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.communicate(timeout=20)  # until all processes have closed the standard error
