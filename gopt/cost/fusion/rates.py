"""Rates of the fusion cost model, fitted to measured times."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float64, Shaped

from gopt.cost.fusion.cost import Kernels, kernels_of
from gopt.cost.fusion.kernel_reach import MAX_TICKS
from gopt.cost.fusion.problem import FusionProblem, prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules, kind_functions, kind_roles
from gopt.cost.hardware import Hardware, unit_rate_devices
from gopt.graph.graph import Graph
from gopt.program.primitives import ROLES


class Rates(NamedTuple):
    """Seconds per unit of work on a machine. Counts of work use the same fields.

    Attributes:
      seconds_per_byte: s per byte moved.
      seconds_per_flop: s per flop of element-wise ops, moves and reductions.
      seconds_per_function_element: s per element of an exponential, root, division or similar
        function.
      seconds_per_product_flop: s per flop of all other ops, mainly products.
      seconds_per_kernel: s per kernel launch.
    """

    seconds_per_byte: float
    seconds_per_flop: float
    seconds_per_function_element: float
    seconds_per_product_flop: float
    seconds_per_kernel: float

    def hardware(self) -> Hardware:
        """Return the machine of one device with these rates. Compute hides no memory time."""
        return unit_rate_devices(
            1,
            memory_bandwidth=1 / self.seconds_per_byte if self.seconds_per_byte else np.inf,
            launch=self.seconds_per_kernel,
            overlap=0.0,
        )

    def compute(self, graph: Graph) -> np.ndarray:
        """Return the compute time of each op of a graph, s, float64 `[N]`."""
        return _work(graph) @ np.array(
            [
                self.seconds_per_flop,
                self.seconds_per_function_element,
                self.seconds_per_product_flop,
            ]
        )

    def problem(self, graph: Graph, *, rules: Rules = RULES["cpu"]) -> FusionProblem:
        """Return the problem of fusing the ops of a graph on this machine."""
        return prepare_fusion(graph, self.hardware(), rules=rules, compute=self.compute(graph))


# One CPU core. Rates of bytes, flop and products were fitted to a single BERT block, in
# `experiments.fused_time`. The fit cannot tell the other two from 0: our choice.
CPU = Rates(3e-11, 8e-11, 2.4e-10, 5e-12, 1e-7)


def count_work(
    graph: Graph, fuse: Bool[np.ndarray, "P N"], *, rules: Rules = RULES["cpu"]
) -> Float64[np.ndarray, "P 5"]:
    """Return the work of configurations: float64 `[P, 5]`, counts in the columns of `Rates`.

    Args:
      graph: graph whose ops are fused.
      fuse: bool `[P, N]`, padding included; true for ops that are fused into their consumers.
      rules: fusion rules.

    Raises:
      ValueError: a configuration recomputes so much that its cost reaches the maximum.
    """
    columns = []
    for unit in np.eye(len(Rates._fields))[:-1]:  # all fields except `seconds_per_kernel`
        problem = Rates(*unit.tolist()).problem(graph, rules=rules)
        kernels = _kernels(problem, fuse)
        if kernels.cost.max(initial=0) >= MAX_TICKS:
            raise ValueError(f"fuse[{kernels.cost.argmax()}] computes too much to be counted")
        columns.append(np.float64(kernels.cost) * float(problem.tick))
    return np.stack([*columns, kernels.is_end.sum(1).astype(np.float64)], 1)


def fit_rates(counts: Shaped[np.ndarray, "K 5"], seconds: Shaped[np.ndarray, " K"]) -> Rates:
    """Return the non-negative rates with the least sum of (predicted / measured - 1)².

    Args:
      counts: work of configurations as from `count_work`, `[K, 5]`.
      seconds: measured times, `[K]`.

    Raises:
      ValueError: the numbers of rows differ or are 0, a count is negative or not finite, or a time
        is not positive and finite.
    """
    counts, seconds = np.asarray(counts, np.float64), np.asarray(seconds, np.float64)
    expected = (len(seconds), len(Rates._fields))
    if counts.shape != expected:
        raise ValueError(f"counts has shape {counts.shape}: expected {expected}")
    if not len(seconds):
        raise ValueError("seconds is empty: expected a time at least")
    known = np.isfinite(counts) & (counts >= 0)
    if not known.all():
        row, column = np.unravel_index(np.argmin(known), known.shape)
        raise ValueError(
            f"counts[{row}, {column}] is {counts[row, column]}: expected a finite number, "
            "not negative"
        )
    good = np.isfinite(seconds) & (seconds > 0)
    if not good.all():
        index = int(np.argmin(good))
        raise ValueError(f"seconds[{index}] is {seconds[index]}: expected a positive number")
    from scipy.optimize import nnls  # slow import

    scale = np.maximum(counts.max(0), 1e-300)
    found, _ = nnls(counts / scale / seconds[:, None], np.ones(len(seconds)))
    return Rates(*(found / scale).tolist())


def _work(graph: Graph) -> np.ndarray:
    """Return plain flops, function elements and other flops of ops, float64 `[N, 3]`."""
    n = int(graph.num_ops)
    kind, flops = np.asarray(graph.kind)[:n], np.asarray(graph.flops)[:n]
    functions = kind_functions()[kind]
    is_product = kind_roles()[kind] == ROLES.index("opaque")
    is_plain = ~is_product & (functions == 0)
    return np.stack([is_plain, ~is_product * functions, is_product], 1) * flops[:, None]


def _kernels(problem: FusionProblem, fuse: np.ndarray) -> Kernels:
    return jax.device_get(jax.jit(jax.vmap(kernels_of, (None, 0)))(problem, fuse))
