"""Four CPU devices, so that what is spread over devices is tested; compiled programs are kept."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # files of a cache are written without locks
    os.environ["JAX_COMPILATION_CACHE_DIR"] += f"/{worker}"
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 4)
# Tracing makes many objects that live; to look for garbage among them takes a tenth of the time.
gc.set_threshold(200_000, 50, 1000)


@pytest.fixture(autouse=True, scope="module")
def _programs_are_freed() -> Iterator[None]:
    """Each compiled program maps memory, and Linux lets a process have 65 530 maps."""
    yield
    jax.clear_caches()
    gc.collect()
    gc.freeze()  # what is left are modules, most of it: they are not looked at again
