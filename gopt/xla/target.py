"""Machines that programs are compiled for: this one, or one that is only described.

XLA compiles for a described machine, and says what bytes a program needs there. Nothing runs.

Source of rates: Google Cloud's pages of TPU versions.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from gopt.cost.hardware import Hardware, unit_rate_devices
from gopt.host.extras import check_installed, optional

_libtpu = optional("libtpu", "tpu", "programs for TPUs")

# flop/s and bytes/s of one chip. Products of float32 are computed in bfloat16 by default.
TPUS = {
    "v4": (275e12, 1.2e12),
    "v5e": (197e12, 819e9),
    "v5p": (459e12, 2.765e12),
    "v6e": (918e12, 1.64e12),
}


class Target(NamedTuple):
    """A machine that programs are compiled for.

    Attributes:
      name: name in messages.
      platform: backend of its kernels, such as "cpu".
      device: its device, if it is only described; `None` for this machine's default device.
      hardware: rates of its roofline, if it is only described; else `None`.
    """

    name: str
    platform: str
    device: Any = None
    hardware: Hardware | None = None

    def shapes(self, args: Any) -> Any:
        """Return arguments as shapes on a described device; for this machine, as they are."""
        if self.device is None:
            return args
        where = SingleDeviceSharding(self.device)

        def shape(leaf: Any) -> jax.ShapeDtypeStruct:
            aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
            return jax.ShapeDtypeStruct(
                aval.shape, aval.dtype, sharding=where, weak_type=aval.weak_type
            )

        return jax.tree.map(shape, args)

    def compile(self, function: Any, args: Any) -> jax.stages.Compiled:
        """Return a jitted function of arguments, or of shapes, compiled for the machine."""
        return function.lower(*self.shapes(args)).compile()


def this_machine() -> Target:
    """Return the default device of this machine."""
    return Target("this machine", jax.default_backend())


def target_of(name: str | None) -> Target:
    """Return the machine of a name; `None` is this machine.

    Args:
      name: "tpu" with a version and the shape of a topology, such as "tpu v5e:2x2". One chip of it
        is used.

    Raises:
      ValueError: it is no name of a machine. The message has the versions.
      ImportError: the compiler for it is not installed. The message names the extra.
    """
    if name is None:
        return this_machine()
    kind, _, topology = name.partition(" ") if isinstance(name, str) else ("", "", "")
    version, _, shape = topology.partition(":")
    if kind != "tpu" or version not in TPUS or not shape:
        raise ValueError(
            f"target is {name!r}: expected 'tpu', a version and a topology, such as 'tpu "
            f"v5e:2x2'; the versions are {', '.join(TPUS)}"
        )
    check_installed(_libtpu)
    try:
        with _without_a_tpu():
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"target is {name!r}: {error}") from None
    flop_rate, bandwidth = TPUS[version]
    hardware = unit_rate_devices(
        1, flop_rate=flop_rate, memory_bandwidth=bandwidth, launch=1e-6, overlap=0.95
    )
    return Target(name, "tpu", found.devices[0], hardware)


@contextmanager
def _without_a_tpu() -> Iterator[None]:
    """Let the compiler for TPUs start where there is no TPU, in any number of processes."""
    wanted = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    added = {} if jax.default_backend() == "tpu" else wanted.keys() - os.environ.keys()
    os.environ.update({key: wanted[key] for key in added})
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]
