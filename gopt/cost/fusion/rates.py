"""The constants of the cost of a fusion, fitted to measured times."""

from typing import NamedTuple

import jax
import numpy as np

from gopt.cost.fusion.cost import Kernels, kernels_of
from gopt.cost.fusion.problem import FusionProblem, prepare_fusion
from gopt.cost.fusion.reachable import MAX_TICKS
from gopt.cost.fusion.rules import RULES, Rules, functions_of_kinds, roles_of_kinds
from gopt.cost.hardware import Hardware, unit_rate_devices
from gopt.graph.graph import Graph
from gopt.program.primitives import ROLES


class Rates(NamedTuple):
    """What a machine takes, in s; features of a configuration have the same fields, as numbers."""

    byte: float  # moved
    flop: float  # of element-wise ops, moves and reductions
    function: float  # element of exponentials, roots, divisions and the like
    product: float  # flop of all other ops, products above all
    kernel: float

    def hardware(self) -> Hardware:
        """Returns the machine of one device; computing hides no moving."""
        return unit_rate_devices(
            1,
            memory_bandwidth=1 / self.byte if self.byte else np.inf,
            launch=self.kernel,
            overlap=0.0,
        )

    def compute(self, graph: Graph) -> np.ndarray:
        """Returns how long each op of a graph computes, in s, float64 `[N]`."""
        return _work(graph) @ np.array([self.flop, self.function, self.product])

    def problem(self, graph: Graph, *, rules: Rules = RULES["cpu"]) -> FusionProblem:
        """Returns the problem of fusing the ops of a graph on this machine."""
        return prepare_fusion(graph, self.hardware(), rules=rules, compute=self.compute(graph))


# One core of a CPU. Bytes, flops and products were fitted to one block only, that of BERT in
# `experiments.fused_time`. That fit does not tell functions and kernels from 0: we chose them.
CPU = Rates(byte=3e-11, flop=8e-11, function=2.4e-10, product=5e-12, kernel=1e-7)


def features(graph: Graph, fuse: np.ndarray, *, rules: Rules = RULES["cpu"]) -> np.ndarray:
    """Returns what configurations move and compute: float64 `[P, 5]`, columns as in `Rates`.

    Args:
      graph: whose ops are fused.
      fuse: bool `[P, N]`, with padding.
      rules: what may be fused.

    Raises:
      ValueError: a configuration computes so much again that costs end.
    """
    columns = []
    for unit in np.eye(len(Rates._fields))[:-1]:  # all but the kernels
        problem = Rates(*unit.tolist()).problem(graph, rules=rules)
        kernels = _kernels(problem, fuse)
        if kernels.cost.max(initial=0) >= MAX_TICKS:
            raise ValueError(f"fuse[{kernels.cost.argmax()}] computes too much to be counted")
        columns.append(np.float64(kernels.cost) * float(problem.tick))
    return np.stack([*columns, kernels.is_end.sum(1).astype(np.float64)], 1)


def fit(counts: np.ndarray, seconds: np.ndarray) -> Rates:
    """Returns the rates, none negative, with the least sum of (predicted / measured - 1)².

    Args:
      counts: see `features`, `[K, 5]`.
      seconds: measured, `[K]`.

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
    from scipy.optimize import nnls  # takes long to import

    scale = np.maximum(counts.max(0), 1e-300)
    found, _ = nnls(counts / scale / seconds[:, None], np.ones(len(seconds)))
    return Rates(*(found / scale).tolist())


def _work(graph: Graph) -> np.ndarray:
    """Returns the plain flops, elements of functions and other flops of ops, float64 `[N, 3]`."""
    n = int(graph.num_ops)
    kind, flops = np.asarray(graph.kind)[:n], np.asarray(graph.flops)[:n]
    functions = functions_of_kinds()[kind]
    is_product = roles_of_kinds()[kind] == ROLES.index("opaque")
    is_plain = ~is_product & (functions == 0)
    return np.stack([is_plain, ~is_product * functions, is_product], 1) * flops[:, None]


def _kernels(problem: FusionProblem, fuse: np.ndarray) -> Kernels:
    return jax.device_get(jax.jit(jax.vmap(kernels_of, (None, 0)))(problem, fuse))
