"""GO's schedules as programs that run in stages, timed on the devices at hand, beside the model.

    python -m experiments.go.timed                # on all devices; a CPU has one for each core
    python -m experiments.go.timed --models "RNNLM step" --methods go --repeats 50

What devices and links do is measured first, and is the machine for which kernels are placed. A
model on one device is XLA's own program. The model knows nothing of what it takes the host to begin
each stage. Times are on the wall: use a machine that does nothing else. JAX runs what one thread
sends to several devices of a CPU one after another: there it shows what stages cost, and no gain.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import gopt
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import UsageError, at_least, choice
from gopt.cost.hardware import Hardware, unit_rate_devices
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import median_ratio, seconds, turns
from gopt.scheduling.methods import METHODS
from gopt.scheduling.stages import Stage
from gopt.workloads.cases import Case, forward, step
from gopt.workloads.recommendation.towers import towers

MODELS: dict[str, Callable[[], Case]] = {
    "RNNLM step": partial(step, "rnnlm", layers=2, batch=32, length=8, hidden=256),
    "Transformer-XL step": partial(step, "transformer_xl", layers=2, batch=2),
    "Inception forward": partial(forward, "inception_v3", batch=2),
    "RandWire forward": partial(forward, "randwire", batch=2),
    "towers forward": towers,
}
CAPACITY = 16e9  # bytes of a device that does not say what it has, as a CPU


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: of `MODELS`.
      methods: of `gopt.schedule`.
      devices: how many; by default all.
      evaluations: of each search.
      repeats: how often each program is timed, all in turn.
      seed: of the searches.
      folder: where the run is saved.
    """

    models: tuple[str, ...] = choice(MODELS)
    methods: tuple[str, ...] = choice(METHODS, ("heft", "go"))
    devices: int | None = None
    evaluations: int = at_least(1, 2000)
    repeats: int = at_least(1, 30)
    seed: int = 0
    folder: Path = Path("runs/timed")


class Timed(NamedTuple):
    """A schedule, by the model and in fact."""

    stages: int
    transfers: int
    alone: float  # s, on one device, by the model
    predicted: float  # s, by the model
    measured: float  # s, the median
    ratio: tuple[float, float, float]  # to one device, in fact: the median and its 95 % interval
    difference: float  # of its values from XLA's, as a share of the largest


def machine(devices: list[jax.Device], repeats: int = 10) -> Hardware:
    """Return what devices, taken to be alike, and links between them do, as measured here.

    A large product of matrices for the rate, a sum for the bandwidth, small products one after
    another for what a kernel costs; arrays of one number and of 16 MiB that go from the first
    device to the last. (Larger ones are given back to the system after each call, and page faults
    would take longer than the sum, see `experiments.harness.command_line.keep_memory`.)
    """
    here, there = devices[0], devices[-1]
    size, long, chain = 1024, 2**22, 200
    wide, large, small, one = (
        jax.device_put(jnp.ones(shape, jnp.float32), here)
        for shape in ((size, size), (long,), (8, 8), (1,))
    )

    @jax.jit
    def kernels(x: jax.Array) -> jax.Array:
        for _ in range(chain):
            x = x @ small
        return x

    multiply, add = jax.jit(jnp.matmul), jax.jit(lambda x: x + 1)
    took = seconds(
        {
            "rate": lambda: multiply(wide, wide),
            "bandwidth": lambda: add(large),
            "launch": lambda: kernels(small),
        },
        repeats=repeats,
    )
    sent = turns(
        {
            "latency": lambda: jax.device_put(one, there),
            "link": lambda: jax.device_put(large, there),
        },
        repeats=repeats,
    )
    latency, link = (float(sent[name].wall.min()) for name in ("latency", "link"))
    stats = here.memory_stats() or {}
    return unit_rate_devices(
        len(devices),
        flop_rate=2 * size**3 / took["rate"],
        memory_bandwidth=2 * large.nbytes / took["bandwidth"],
        launch=took["launch"] / chain,
        capacity=stats.get("bytes_limit", CAPACITY),
        latency=latency,
        bandwidth=large.nbytes / max(link - latency, 1e-9),
    )


def measure(
    case: Case, hardware: Hardware, devices: list[jax.Device], settings: Settings
) -> dict[str, Timed]:
    """Return what each method's schedule of a function takes, by the model and in fact."""
    found, staged = {}, {}
    for method in settings.methods:
        found[method] = gopt.schedule(
            case.fn,
            *case.args,
            hardware=hardware,
            objective="makespan",
            method=method,
            evaluations=settings.evaluations,
            seed=settings.seed,
            donate_argnums=case.donated,
        )
        staged[method] = found[method].apply(devices=devices)
    alone = jax.jit(case.fn, donate_argnums=case.donated)
    given = random_arguments(case.args)

    def arguments() -> tuple[dict[str, Any]]:
        """Each function finds its own, where its schedule has them."""
        copies = {name: jax.tree.map(jnp.copy, given) for name in (*staged, "")}
        placed = {name: each.place(*copies[name]) for name, each in staged.items()}
        return ({**placed, "": jax.device_put(copies[""], devices[0])},)

    def calls(name: str, function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
        return lambda every: function(*every[name])

    programs = {"": alone, **staged}
    called = {name: calls(name, function) for name, function in programs.items()}
    expected, (every,) = alone(*jax.tree.map(jnp.copy, given)), arguments()
    differ = {name: largest_difference(called[name](every), expected) for name in staged}
    times = turns(called, arguments, repeats=settings.repeats)
    return {
        method: Timed(
            stages=sum(isinstance(action.what, Stage) for action in staged[method].actions),
            transfers=sum(not isinstance(action.what, Stage) for action in staged[method].actions),
            alone=found[method].before.decision.makespan,
            predicted=found[method].after.decision.makespan,
            measured=float(np.median(times[method].wall)),
            ratio=median_ratio(times[method].wall, times[""].wall),
            difference=differ[method],
        )
        for method in settings.methods
    }


def main(settings: Settings) -> None:
    """Time all models, print the table and save it.

    Raises:
      UsageError: there are less than two devices.
    """
    devices = jax.devices()[: settings.devices]
    if len(devices) < 2:
        raise UsageError(f"there are {len(devices)} devices: expected 2 at least")
    hardware = machine(devices)
    measured = {
        name: measure(MODELS[name](), hardware, devices, settings)
        for name in track(settings.models, "models")
    }
    store.save_settings(settings.folder, settings)
    store.save_json(
        settings.folder / "timed.json",
        {
            "device": devices[0].device_kind,
            "machine": {k: np.asarray(v).tolist() for k, v in hardware._asdict().items()},
            "models": {
                name: {method: timed._asdict() for method, timed in rows.items()}
                for name, rows in measured.items()
            },
        },
    )
    columns = (
        *("model", "method", "stages", "transfers", "one device, simulated, ms", "simulated, ms"),
        *("ratio", "measured, ms", "ratio", "95 %", "values differ by"),
    )
    rows = [
        _row(name, method, timed)
        for name, every in measured.items()
        for method, timed in every.items()
    ]
    title = (
        f"Schedules on {len(devices)} devices, {settings.evaluations} evaluations, simulated "
        f"and timed in {settings.repeats} turns; ratios are to one device"
    )
    tables.show(title, columns, rows, settings.folder / "table.md")
    rate, bandwidth = float(hardware.flop_rate[0]), float(hardware.memory_bandwidth[0])
    print(
        f"{devices[0].device_kind}: {rate / 1e9:.0f} Gflop/s, {bandwidth / 1e9:.1f} GB/s, "
        f"{1e6 * float(hardware.launch[0]):.1f} µs a kernel; links "
        f"{float(hardware.bandwidth[0, 1]) / 1e9:.1f} GB/s, "
        f"{1e6 * float(hardware.latency[0, 1]):.0f} µs"
    )
    print(f"saved in {settings.folder}")


def _row(name: str, method: str, timed: Timed) -> tuple[Any, ...]:
    ratio, low, high = timed.ratio
    return (
        *(name, method, timed.stages, timed.transfers, f"{1e3 * timed.alone:.1f}"),
        *(f"{1e3 * timed.predicted:.1f}", f"{timed.predicted / timed.alone:.2f}"),
        *(f"{1e3 * timed.measured:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"),
        f"{timed.difference:.0e}",
    )


if __name__ == "__main__":
    # A device of a CPU is a core: no program may use those of others.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    command_line.run(main, Settings, __doc__, keeps_memory=True)
