"""Machines: compute, memory and links of devices, and the roofline time of ops."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

NO_CONTENTION = -1  # entry of `Hardware.channel`: transfers of the pair never contend
MAX_DEVICES = 180  # cost models pack three resource numbers, one of them a link, in an int32


class Hardware(NamedTuple):
    """A machine of `D` devices. Arrays only, so that machines can be stacked into a batch.

    Attributes:
      flop_rate: float64 `[D]`; flop/s.
      memory_bandwidth: float64 `[D]`; bytes/s.
      launch: float64 `[D]`; overhead of every op, s.
      overlap: float64 `[]`; share of min(compute time, memory time) that is hidden, 0 to 1.
      capacity: float64 `[D]`; memory, bytes.
      latency: float64 `[D, D]`; fixed time of a transfer from row to column, s.
      bandwidth: float64 `[D, D]`; rate of a transfer from row to column, bytes/s.
      channel: int32 `[D, D]`; link of the pair, 0 to D² - 1, or `NO_CONTENTION`.
      synchronous: bool `[]`; true if a transfer also waits for, and occupies, both devices.
    """

    flop_rate: Any
    memory_bandwidth: Any
    launch: Any
    overlap: Any
    capacity: Any
    latency: Any
    bandwidth: Any
    channel: Any
    synchronous: Any


def pair_channels(num_devices: int) -> Int32[np.ndarray, "D D"]:
    """Return one link per ordered pair of devices. int32 `[D, D]`."""
    return np.arange(num_devices**2, dtype=np.int32).reshape(num_devices, num_devices)


def bus_channels(num_devices: int) -> Int32[np.ndarray, "D D"]:
    """Return one outgoing link per device. int32 `[D, D]`."""
    return np.repeat(np.arange(num_devices, dtype=np.int32), num_devices).reshape(
        num_devices, num_devices
    )


def no_channels(num_devices: int) -> Int32[np.ndarray, "D D"]:
    """Return links without contention. int32 `[D, D]`."""
    return np.full((num_devices, num_devices), NO_CONTENTION, np.int32)


def unit_rate_devices(
    num_devices: int,
    *,
    flop_rate: float = 1.0,
    memory_bandwidth: float = 1.0,
    launch: float = 0.0,
    overlap: float = 1.0,
    capacity: float = np.inf,
    latency: float = 0.0,
    bandwidth: float = 1.0,
    channel: Callable[[int], np.ndarray] = pair_channels,
    synchronous: bool = False,
) -> Hardware:
    """Return a machine of equal devices with equal links.

    Args:
      num_devices: number of devices.
      flop_rate: compute rate, flop/s.
      memory_bandwidth: memory rate, bytes/s.
      launch: overhead of every op, s.
      overlap: share of min(compute time, memory time) that is hidden, 0 to 1.
      capacity: memory per device, bytes.
      latency: fixed time of a transfer, s.
      bandwidth: rate of a transfer, bytes/s.
      channel: map of links: `pair_channels`, `bus_channels` or `no_channels`.
      synchronous: whether a transfer also occupies both devices.

    Raises:
      ValueError: `num_devices` is less than 1, or a value is invalid (see `check_hardware`).
    """
    if not num_devices >= 1:
        raise ValueError(f"num_devices is {num_devices}: expected at least one device")

    def each(value: float) -> np.ndarray:
        return np.full(num_devices, value, np.float64)

    hardware = Hardware(
        flop_rate=each(flop_rate),
        memory_bandwidth=each(memory_bandwidth),
        launch=each(launch),
        overlap=np.float64(overlap),
        capacity=each(capacity),
        latency=np.full((num_devices, num_devices), latency, np.float64),
        bandwidth=np.full((num_devices, num_devices), bandwidth, np.float64),
        channel=channel(num_devices),
        synchronous=np.bool_(synchronous),
    )
    check_hardware(hardware)
    return hardware


def check_hardware(hardware: Hardware) -> None:
    """Raise `ValueError` at the first invalid value, naming its field and index."""
    count = np.size(hardware.flop_rate)
    if count < 1:
        raise ValueError("flop_rate is empty: a machine needs at least one device")
    if count > MAX_DEVICES:
        raise ValueError(f"flop_rate has {count} devices: expected {MAX_DEVICES} at most")
    vectors = ("flop_rate", "memory_bandwidth", "launch", "capacity")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(vectors, (count,))
    shapes |= dict.fromkeys(("latency", "bandwidth", "channel"), (count, count))
    for field, shape in shapes.items():
        values = np.asarray(getattr(hardware, field))
        if values.shape != shape:
            raise ValueError(f"{field} has shape {values.shape}: expected {shape}")
        positive = field in ("flop_rate", "memory_bandwidth", "bandwidth", "capacity")
        least = 0.0 if field in ("launch", "latency") else NO_CONTENTION
        good = values > 0 if positive else values >= least
        if field in ("launch", "latency"):
            good = good & np.isfinite(values)
        if field == "channel":
            good = good & (values < count**2)
        if not good.all():
            index = np.unravel_index(np.argmin(good), shape)
            what = "a positive number" if positive else "a finite number, not negative"
            what = f"a link in 0..{count**2 - 1}, or -1" if field == "channel" else what
            where = ", ".join(str(int(i)) for i in index)
            raise ValueError(f"{field}[{where}] is {values[index]}: expected {what}")
    if not 0 <= hardware.overlap <= 1:
        raise ValueError(f"overlap is {hardware.overlap}: expected a share in [0, 1]")


def op_seconds(flops: Any, bytes: Any, hardware: Hardware) -> Float64[np.ndarray, "N D"]:
    """Return the roofline time of ops on each device, in s. float64 `[N, D]`.

    `C + M - overlap · min(C, M) + launch`, with C = flops / rate and M = bytes / bandwidth.
    Overlap 1 is the plain roofline (Williams, Waterman, Patterson 2009).

    Args:
      flops: floating-point operations of ops, `[N]`.
      bytes: bytes moved by ops, `[N]`.
      hardware: machine of `D` devices.
    """
    compute = np.asarray(flops, np.float64)[:, None] / hardware.flop_rate
    memory = np.asarray(bytes, np.float64)[:, None] / hardware.memory_bandwidth
    hidden = hardware.overlap * np.minimum(compute, memory)
    return compute + memory - hidden + hardware.launch


def h100s(num_devices: int = 2) -> Hardware:
    """Return H100 SXM GPUs on NVLink 4.

    494 TFLOP/s dense TF32, 3.35 TB/s and 80 GB each, 450 GB/s each way between any two (NVIDIA
    H100 data sheet). Launch 1 µs is XLA's own assumption for GPUs. Our choices: latency 5 µs and
    one outgoing link per device.
    """
    return unit_rate_devices(
        num_devices,
        flop_rate=494e12,
        memory_bandwidth=3.35e12,
        launch=1e-6,
        overlap=0.95,
        capacity=80e9,
        latency=5e-6,
        bandwidth=450e9,
        channel=bus_channels,
    )


def p100s(num_devices: int = 2) -> Hardware:
    """Return P100 PCIe GPUs on PCIe 3.0 x16, the machine of the first placement papers.

    9.3 TFLOP/s float32, 732 GB/s and 16 GB each (NVIDIA P100 data sheet). Copies reach 12 GB/s of
    the link's 15.75 GB/s, as usually measured. Our choices: launch 5 µs, latency 10 µs and one
    outgoing link per device.
    """
    return unit_rate_devices(
        num_devices,
        flop_rate=9.3e12,
        memory_bandwidth=732e9,
        launch=5e-6,
        capacity=16e9,
        latency=10e-6,
        bandwidth=12e9,
        channel=bus_channels,
    )


def tpus(num_devices: int = 4) -> Hardware:
    """Return TPU v4 chips; the torus of neighbour links is taken as a full mesh.

    275 TFLOP/s bfloat16, 1.2 TB/s and 32 GiB each, six links of 50 GB/s (Jouppi et al. 2023,
    table 4). Our choices: launch 1 µs, latency 1 µs and one link per ordered pair.
    """
    return unit_rate_devices(
        num_devices,
        flop_rate=275e12,
        memory_bandwidth=1.2e12,
        launch=1e-6,
        capacity=32 * 2**30,
        latency=1e-6,
        bandwidth=50e9,
    )


def cpu_sockets(num_devices: int = 2) -> Hardware:
    """Return CPU sockets that share one memory image.

    2.0 TFLOP/s float32 and 205 GB/s of eight DDR4-3200 channels each (Intel Xeon Platinum 8380:
    40 cores, AVX-512 at about 2.3 GHz sustained, derated to 2.0), 256 GB, 33.6 GB/s for three
    UPI links of 11.2 GT/s each way. Launch 20 ns is XLA's own assumption for CPUs.
    """
    return unit_rate_devices(
        num_devices,
        flop_rate=2.0e12,
        memory_bandwidth=205e9,
        launch=2e-8,
        capacity=256e9,
        latency=1e-7,
        bandwidth=33.6e9,
    )


def ideal(num_devices: int = 2, *, synchronous: bool = False) -> Hardware:
    """Return a machine of unit rates, without overheads, limits or contention.

    An op of f flop and no bytes takes f s; a transfer of b bytes takes b s.

    Args:
      num_devices: number of devices.
      synchronous: whether a transfer also occupies both devices.
    """
    return unit_rate_devices(num_devices, channel=no_channels, synchronous=synchronous)


PRESETS: dict[str, Callable[[], Hardware]] = {
    "2xh100": lambda: h100s(2),
    "4xh100": lambda: h100s(4),
    "2xp100": lambda: p100s(2),
    "8xp100": lambda: p100s(8),
    "4xtpu": lambda: tpus(4),
    "cpu": lambda: cpu_sockets(2),
    "ideal": lambda: ideal(2),
}
