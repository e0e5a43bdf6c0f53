"""Tests in two tiers, on four CPU devices; compiled programs are kept between runs.

`pytest` runs the quick tier. `pytest --all` also runs the tests marked `slow`. `pytest -m small
--all` runs the set for the oldest supported versions. Tests compile many short programs, so XLA
optimises little; modules marked `optimized` compile as users do.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("NUMBA_OPT", "0")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # subprocesses, too
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
# One thread compiles a program: pytest-xdist keeps all cores busy.
os.environ["XLA_FLAGS"] = (
    f"--xla_cpu_parallel_codegen_split_count=1 {os.environ.get('XLA_FLAGS', '')}"
)

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 4)
# Tracing makes many long-lived objects; collecting them would take a tenth of the time.
gc.set_threshold(200_000, 50, 1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True, scope="module")
def _compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sets how programs of a module are compiled, and frees them after it.

    Each compiled program maps memory, and Linux lets a process have 65 530 maps.
    """
    optimized = request.node.get_closest_marker("optimized") is not None
    jax.config.update("jax_disable_most_optimizations", not optimized)
    yield
    jax.clear_caches()
    gc.collect()
    gc.freeze()  # the remaining objects are modules: do not visit them again
