"""Time GO's schedules as programs that run in stages, and compare them with the cost model.

    python -m experiments.go.studies.timed     # on all devices; a CPU has one for each core
    python -m experiments.go.studies.timed --models "RNNLM step" --methods go --repeats 50

Devices and links are measured first; kernels are placed for that machine. A model on one device is
XLA's own program. The cost model does not include the time that the host needs to start each stage.

Times are wall times: use an otherwise idle machine. JAX runs programs that one thread sends to
several devices of a CPU one after another. There it shows the cost of stages, and no gain.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import gopt
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import UsageError, at_least, choice
from gopt.cost.hardware import Hardware, unit_rate_devices
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import median_ratio, time_interleaved
from gopt.scheduling.searches import SEARCHES
from gopt.scheduling.stages import Stage
from gopt.workloads.cases import Case, forward, step
from gopt.workloads.recommendation.towers import towers

MODELS: dict[str, Callable[[], Case]] = {
    "RNNLM step": partial(step, "rnnlm", layers=2, batch=32, length=8, hidden=256),
    "Inception forward": partial(forward, "inception_v3", batch=2),
    "towers forward": towers,
}
CAPACITY = 16e9  # bytes of a device that does not report its memory, such as a CPU


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `MODELS`.
      methods: searches of `gopt.schedule`.
      devices: number of devices; by default all.
      evaluations: budget of each search.
      repeats: rounds in which each program is timed, interleaved.
      folder: folder of the run.
    """

    models: tuple[str, ...] = choice(MODELS)
    methods: tuple[str, ...] = choice(SEARCHES, ("heft", "go"))
    devices: int | None = None
    evaluations: int = at_least(1, 2000)
    repeats: int = at_least(1, 30)
    folder: Path = Path("runs/timed")


def machine(devices: list[jax.Device], repeats: int = 10) -> Hardware:
    """Return the measured rates of devices, taken to be alike, and of links between them.

    A large matrix product gives the rate, a sum the bandwidth, and small products one after another
    the launch time. Arrays of one number and of 16 MiB are sent from the first device to the last.
    Larger arrays would be returned to the system after each call, and page faults would take longer
    than the sum (see `experiments.harness.command_line.keep_memory`).
    """
    here, there = devices[0], devices[-1]
    size, long, chain = 1024, 2**22, 200
    wide, large, small, one = (
        jax.device_put(jnp.ones(shape, jnp.float32), here)
        for shape in ((size, size), (long,), (8, 8), (1,))
    )
    products = jax.jit(lambda x: functools.reduce(jnp.matmul, [small] * chain, x))
    multiply, add = jax.jit(jnp.matmul), jax.jit(lambda x: x + 1)
    calls: dict[str, Callable[[], Any]] = {
        "rate": lambda: multiply(wide, wide),
        "bandwidth": lambda: add(large),
        "launch": lambda: products(small),
        "latency": lambda: jax.device_put(one, there),
        "link": lambda: jax.device_put(large, there),
    }
    times = time_interleaved(calls, repeats=repeats)
    took = {name: float(each.wall.min()) for name, each in times.items()}
    return unit_rate_devices(
        len(devices),
        flop_rate=2 * size**3 / took["rate"],
        memory_bandwidth=2 * large.nbytes / took["bandwidth"],
        launch=took["launch"] / chain,
        capacity=(here.memory_stats() or {}).get("bytes_limit", CAPACITY),
        latency=took["latency"],
        bandwidth=large.nbytes / max(took["link"] - took["latency"], 1e-9),
    )


def measure(
    name: str, hardware: Hardware, devices: list[jax.Device], settings: Settings
) -> list[dict[str, Any]]:
    """Return a row for each method's schedule of a model, as simulated and as measured.

    Times are s. "ratio" is the measured time ÷ the measured time on one device, a median with its
    95 % interval. "difference" is the largest from XLA's values, as a share of the largest value.
    """
    case = MODELS[name]()
    schedule = partial(gopt.schedule, case.fn, *case.args, donate_argnums=case.donated)
    schedule = partial(schedule, hardware=hardware, objective="makespan")
    found = {m: schedule(search=m, evaluations=settings.evaluations) for m in settings.methods}
    staged = {method: one.apply(devices=devices) for method, one in found.items()}
    alone = jax.jit(case.fn, donate_argnums=case.donated)
    given = random_arguments(case.args)

    def arguments() -> tuple[dict[str, Any]]:
        """Return the arguments of each function, placed as its schedule needs them."""
        copies = {name: jax.tree.map(jnp.copy, given) for name in (*staged, "")}
        placed = {name: each.place(*copies[name]) for name, each in staged.items()}
        return ({**placed, "": jax.device_put(copies[""], devices[0])},)

    called: dict[str, Callable[..., Any]] = {
        name: lambda every, name=name, function=function: function(*every[name])
        for name, function in {"": alone, **staged}.items()
    }
    expected, (every,) = alone(*jax.tree.map(jnp.copy, given)), arguments()
    times = time_interleaved(called, arguments, repeats=settings.repeats)
    return [
        {
            "model": name,
            "method": method,
            "stages": sum(isinstance(action.what, Stage) for action in staged[method].actions),
            "alone": one.before.decision.makespan,
            "measured": float(np.median(times[""].wall)),
            "predicted": one.after.decision.makespan / one.before.decision.makespan,
            "ratio": median_ratio(times[method].wall, times[""].wall),
            "difference": largest_difference(called[method](every), expected),
        }
        for method, one in found.items()
    ]


def main(settings: Settings) -> None:
    """Time all models, print the table and save it.

    Raises:
      UsageError: the process has fewer than two devices.
    """
    devices = jax.devices()[: settings.devices]
    if len(devices) < 2:
        raise UsageError(f"there are {len(devices)} devices: expected 2 at least")
    hardware = machine(devices)
    rows = list[dict[str, Any]]()
    for name in track(settings.models, "models"):
        rows += measure(name, hardware, devices, settings)
    store.save_settings(settings.folder, settings)
    store.save_json(settings.folder / "timed.json", rows)
    columns: list[tables.Column] = [
        *((name, name) for name in ("model", "method", "stages")),
        ("one device, simulated, ms", tables.milliseconds("alone", digits=1)),
        ("measured, ms", tables.milliseconds("measured", digits=1)),
        ("simulated, of one device", "{predicted:.2f}"),
        ("measured, of one device, 95 %", tables.ratio("ratio")),
        ("values differ by", "{difference:.0e}"),
    ]
    title = (
        f"Schedules on {len(devices)} devices, {settings.evaluations} evaluations, simulated "
        f"and timed in {settings.repeats} rounds; {devices[0].device_kind}: "
        f"{hardware.flop_rate[0] / 1e9:.0f} Gflop/s, {hardware.memory_bandwidth[0] / 1e9:.1f} "
        f"GB/s, {1e6 * hardware.launch[0]:.1f} µs a kernel; links "
        f"{hardware.bandwidth[0, 1] / 1e9:.1f} GB/s, {1e6 * hardware.latency[0, 1]:.0f} µs"
    )
    tables.show_rows(title, rows, columns, settings.folder / "table.md")


if __name__ == "__main__":
    # A device of a CPU is a core: no program may use other cores.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    command_line.run(main, Settings, __doc__, keeps_memory=True)
