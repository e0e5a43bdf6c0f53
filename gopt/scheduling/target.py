"""Machines that programs are compiled for: this one, or one that is only described.

XLA compiles for a described machine, and says what bytes a program needs there. Nothing runs.

Sources of rates: Google Cloud's pages of TPU versions; NVIDIA's data sheet of the H100 SXM.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from gopt.cost.hardware import Hardware, h100s, unit_rate_devices
from gopt.host.extras import check_installed, optional
from gopt.xla.applied import compile_for

_libtpu = optional("libtpu", "tpu", "programs for TPUs")
_cuda = optional("jax_plugins.xla_cuda12", "gpu", "programs for GPUs")

# flop/s and bytes/s of one chip. Products of float32 are computed in bfloat16 by default.
TPUS = {
    "v4": (275e12, 1.2e12),
    "v5e": (197e12, 819e9),
    "v5p": (459e12, 2.765e12),
    "v6e": (918e12, 1.64e12),
}

# An H100 SXM, as XLA's `GpuTargetConfigProto` wants it.
_H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_block_limit: 65536 registers_per_core_limit: 65536
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


class Target(NamedTuple):
    """A machine that programs are compiled for.

    Attributes:
      name: name in messages.
      platform: backend of its kernels, such as "cpu".
      device: its device, if it is only described; `None` for this machine's default device.
      hardware: rates of its roofline; `None` for the model of one CPU core.
    """

    name: str
    platform: str
    device: Any = None
    hardware: Hardware | None = None

    @property
    def is_cpu_here(self) -> bool:
        """Whether kernels run on a CPU of this machine.

        The model's bytes are XLA's only there: other machines hold values near their cores, or in
        fewer bits.
        """
        return self.device is None and self.platform == "cpu"

    def compile(self, function: Any, args: Any) -> jax.stages.Compiled:
        """Return a jitted function of arguments, or of shapes, compiled for the machine."""
        return compile_for(self.device, function, args)


def this_machine() -> Target:
    """Return the default device of this machine; GPUs have the rates of an H100, TPUs of a v5e."""
    platform = jax.default_backend()
    hardware = {"gpu": h100s(1), "tpu": _tpu("v5e")}.get(platform)
    return Target("this machine", platform, hardware=hardware)


def target_of(name: str | None) -> Target:
    """Return the machine of a name; `None` is this machine.

    Args:
      name: "h100"; or "tpu" with a version and the shape of a topology, such as "tpu v5e:2x2", of
        which one chip is used.

    Raises:
      ValueError: no machine has the name. The message has the versions.
      ImportError: the compiler for it is not installed. The message names the extra.
    """
    if name is None:
        return this_machine()
    if name == "h100":
        return Target(name, "gpu", _described_gpu(), h100s(1))
    kind, _, topology = name.partition(" ") if isinstance(name, str) else ("", "", "")
    version, _, shape = topology.partition(":")
    if kind != "tpu" or version not in TPUS or not shape:
        raise ValueError(
            f"target is {name!r}: expected 'h100', or 'tpu' with a version and a topology, such as "
            f"'tpu v5e:2x2'; the versions are {', '.join(TPUS)}"
        )
    check_installed(_libtpu)
    try:
        with _variables("tpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1"):
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"target is {name!r}: {error}") from None
    return Target(name, "tpu", found.devices[0], _tpu(version))


def _tpu(version: str) -> Hardware:
    flop_rate, bandwidth = TPUS[version]
    return unit_rate_devices(
        1, flop_rate=flop_rate, memory_bandwidth=bandwidth, launch=1e-6, overlap=0.95
    )


def _described_gpu() -> Any:
    """Return the device of a described H100."""
    check_installed(_cuda)

    def topology() -> Any:
        return topologies.get_topology_desc(platform="cuda", target_config=_H100, topology="1x1x1")

    jax.devices()  # JAX starts, and leaves the compiler for GPUs out where there is no GPU
    try:
        found = topology()
    except NotImplementedError:
        with _variables("gpu", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1"):
            _cuda.initialize()
        found = topology()
    return found.devices[0]


@contextmanager
def _variables(platform: str, **wanted: str) -> Iterator[None]:
    """Set variables of the environment, for a compiler that starts where its platform is not."""
    added = {} if jax.default_backend() == platform else wanted.keys() - os.environ.keys()
    os.environ.update({key: wanted[key] for key in added})
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]
