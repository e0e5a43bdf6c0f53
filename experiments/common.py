"""What the experiments share: start-up, a folder for each run, tables."""

import ctypes
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from gopt.files import write_whole
from gopt.measure.timing import cores


def start(devices: int | None = None) -> None:
    """Sets JAX up for an experiment; call it before anything is computed.

    Makes one CPU device for each core that this process may use, and caches compiled programs in
    the user's cache folder.
    """
    import jax

    jax.config.update("jax_num_cpu_devices", devices or cores())
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "gopt" / "jax"
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def keep_memory() -> bool:
    """Asks the allocator of glibc to keep what is freed, and returns whether it does.

    What a program frees after each call, and needs again in the next, it gives back to the system
    or not by where it lies. If it does, page faults take as long as the program itself: some
    programs then seem twice as slow as others, which are as fast. Threads keep heaps of their own:
    in one heap for all, which compilation has cut to pieces, to find memory can take as long as to
    compute. Blocks of 64 MiB or more, which no heap of a thread can hold, are given back all the
    same. Call it before JAX computes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no glibc
        return False
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # of malloc.h
    # glibc deletes an empty heap of a thread unless less than top_pad would be left: two heaps of
    # 64 MiB at most.
    settings = {trim_threshold: 2**31 - 1, top_pad: 2**28, mmap_max: 0}
    return all(mallopt(*setting) for setting in settings.items())


def versions() -> dict[str, str]:
    """Returns what the figures depend on besides the settings."""
    names = ("gopt-jax", "jax", "jaxlib", "flax", "optax", "jraph", "numpy")
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return {
        **found,
        "revision": _revision(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _revision() -> str:
    """Returns the commit of this code, marked if files that it has were changed."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    here = Path(__file__).parent
    try:
        found = subprocess.run(describe, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # not a checkout, or there is no git
    return found.stdout.strip()


def save_json(path: Path, value: Any) -> None:
    """Writes JSON, whole or not at all."""
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, default=_plain) + "\n")


def save_settings(folder: Path, settings: Any) -> None:
    """Writes the settings of a run and the versions it ran with to `settings.json`."""
    save_json(folder / "settings.json", {**dataclasses.asdict(settings), "versions": versions()})


def origin(settings: Any, **more: Any) -> dict[str, Any]:
    """Returns how something was made, as JSON values: settings, what else there is, versions."""
    described = {**dataclasses.asdict(settings), **more, "versions": versions()}
    return dict(json.loads(json.dumps(described, default=str)))


def digest(tree: Any) -> str:
    """Returns what tells arrays, of parameters or a problem, from others."""
    import jax

    every = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        every.update(np.asarray(leaf).tobytes())
    return every.hexdigest()[:16]


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Returns a table to print: the first column to the left, figures to the right."""
    result = Table(title=title)
    for index, column in enumerate(columns):
        result.add_column(
            column, justify="right" if index else "left", no_wrap=index == 0, overflow="fold"
        )
    for row in rows:
        result.add_row(*(escape(str(cell)) for cell in row))
    return result


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns the same table in Markdown, to paste."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    cells = [[str(cell).replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Prints a table, on lines as long as it needs, and writes it to a Markdown file."""
    console, shown = Console(), table(title, columns, rows)
    widest = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, widest, shown).maximum)
    console.print(shown)
    with write_whole(path) as temporary:
        temporary.write_text(f"{title}\n\n{markdown(columns, rows)}")


def save_figure(path: Path, figure: Any) -> None:
    """Writes a matplotlib figure, whole or not at all."""
    with write_whole(path) as temporary:
        figure.savefig(temporary, dpi=200)


def mean_interval(values: Any) -> tuple[float, float]:
    """Returns the mean of a sample and half of its 95 % interval, by Student's t."""
    from scipy import stats

    values = np.asarray(values, np.float64)
    if values.size < 2:
        return float(values.mean()), float("nan")
    error = values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean()), float(stats.t.ppf(0.975, values.size - 1) * error)


def interval(ratio: tuple[float, float, float]) -> str:
    """Returns a ratio and its interval, as tables have it."""
    middle, low, high = ratio
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        array = np.asarray(value)
        if array.dtype.kind == "f":
            is_known = np.isfinite(array)
            array = array.astype(object)
            array[~is_known] = None  # JSON has no infinite numbers
        return array.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")
