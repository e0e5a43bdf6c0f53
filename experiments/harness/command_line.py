"""Read settings from the command line, and set JAX up for an experiment."""

import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import resource
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from gopt.measure.timing import cores as available_cores

Result = TypeVar("Result")


def start(devices: int | None = None) -> None:
    """Set JAX up for an experiment; call it before computing anything.

    Makes one CPU device for each core that this process may use, and caches compiled programs in
    the user's cache folder.
    """
    import jax

    jax.config.update("jax_num_cpu_devices", devices or available_cores())
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "gopt" / "jax"
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def keep_memory(*, heaps: int | None = None) -> bool:
    """Ask glibc's allocator to keep freed memory, and return whether it does.

    Programs free memory after each call and need it again in the next. By default glibc returns
    some of it to the system, depending on its address. Then page faults take as long as the program
    itself, and some programs seem twice as slow as equally fast ones. Call this before JAX
    computes.

    Args:
      heaps: largest number of heaps. By default threads have heaps of their own, which blocks of
        64 MiB or more do not fit: these are still returned to the system. One heap for all keeps
        them, too. But compilation fragments it, and then finding memory for many small programs
        can take as long as computing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    trim_threshold, top_pad, mmap_max, arena_max = -1, -2, -4, -8  # of malloc.h
    # glibc deletes an empty heap of a thread unless less than top_pad would be left: two heaps of
    # 64 MiB at most.
    settings = {trim_threshold: 2**31 - 1, top_pad: 2**28, mmap_max: 0}
    if heaps is not None:
        settings[arena_max] = heaps
    return all(mallopt(*setting) for setting in settings.items())


def choice(known: Collection[str], default: str | Iterable[str] | None = None) -> Any:
    """Return a field of settings that holds one name, or several.

    Args:
      known: names to choose from; help texts list them.
      default: one name, or several; by default all of them.
    """
    if not isinstance(default, str):
        default = tuple(known if default is None else default)
    return dataclasses.field(default=default, metadata={"choices": known})


def at_least(least: float, default: Any) -> Any:
    """Return a field of settings that holds one or several numbers with a lower bound."""
    return dataclasses.field(default=default, metadata={"least": least})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of settings that are checked against the declarations of their fields.

    Raises:
      UsageError: a name is unknown, or a number is too small; the message names it.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            values = value if isinstance(value, tuple) else (value,)
            if "choices" in field.metadata:
                check_names(field.name, values, field.metadata["choices"])
            if "least" in field.metadata:
                least = field.metadata["least"]
                if not values or min(values) < least:
                    what = "numbers, " if value is values else ""
                    raise UsageError(f"{field.name} is {value}: expected {what}{least} at least")


@dataclasses.dataclass(frozen=True)
class TrainedSettings(Settings):
    """Base class of settings of experiments that evaluate a policy or a network.

    Attributes:
      train: train it first, instead of loading `weights`.
      weights: file to evaluate; by default the one that ships.
      seed: seed of everything random.
    """

    train: bool = False
    weights: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train and self.weights is not None:
            raise UsageError("weights are given, and train is set: expected one of them")


class UsageError(ValueError):
    """A wrong setting, reported without a traceback."""


def check_names(field: str, names: Sequence[str], known: Collection[str]) -> None:
    """Raise a `UsageError` that names the field if one of its names is unknown."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UsageError(f"{field} has {unknown[0]!r}: expected some of {', '.join(known)}")


def run(
    main: Callable[[Any], Any],
    settings: type[Any],
    description: str | None,
    *,
    devices: int | None = None,
    cores: int | None = None,
    keeps_memory: bool = False,
    heaps: int | None = None,
) -> None:
    """Run an experiment with the settings of the command line.

    Args:
      main: experiment, a function of its settings.
      settings: dataclass of the settings.
      description: docstring of the experiment's module.
      devices: CPU devices of JAX, by default one for each core.
      cores: cores that this process keeps to, by default all that it may use.
      keeps_memory: whether to call `keep_memory`.
      heaps: its largest number of heaps.
    """
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
    with _listed_choices(settings):
        given = tyro.cli(settings, description=description, prog=f"python -m {name}")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    start(devices)
    if keeps_memory:
        keep_memory(heaps=heaps)
    try:
        main(given)
    except UsageError as error:
        sys.exit(f"python -m {name}: {error}")


@contextlib.contextmanager
def _listed_choices(settings: type[Any]) -> Iterator[None]:
    """Declare the allowed names of fields as their types, for help texts."""
    before = dict(settings.__annotations__)
    for field in dataclasses.fields(settings):
        if "choices" in field.metadata:
            one: Any = Literal[tuple(field.metadata["choices"])]
            is_one = isinstance(field.default, str)
            settings.__annotations__[field.name] = one if is_one else tuple[one, ...]  # type: ignore[valid-type]
    try:
        yield
    finally:
        settings.__annotations__.clear()
        settings.__annotations__.update(before)


def apart(call: Callable[..., Result], *args: Any, cached: bool = True) -> Result:
    """Return the result of a call in a new process, which ends when this one does.

    Args:
      call: function of a module.
      *args: its arguments.
      cached: whether to reuse programs that were compiled before.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=_start_apart, initargs=(cached,)) as pool:
        return pool.submit(call, *args).result()


def _start_apart(cached: bool) -> None:
    import jax

    threading.Thread(target=_end_with_parent, daemon=True).start()
    start()
    if not cached:
        jax.config.update("jax_enable_compilation_cache", False)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def peak_bytes() -> int:
    """Return the most host memory that this process has used so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
