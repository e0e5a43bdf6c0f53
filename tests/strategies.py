"""Random problems and edge cases with keys, for property tests of the cost models."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from gopt.cost.hardware import Hardware, bus_channels, no_channels, pair_channels, unit_rate_devices
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import MAX_UNITS, Problem, prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Op, Output, Shape
from gopt.graph.kinds import INPUT, UNKNOWN

SMALL = Shape(24, 24, 64)  # all random cases fit, so that few programs are compiled
WIDE = Shape(31, 45, 97)  # the same cases with other padding
LARGE = Shape(1024, 1024, 1024)  # for hubs


@dataclasses.dataclass(frozen=True)
class Case:
    """An unpadded graph on hardware, and one candidate for it.

    Attributes:
      graph: unpadded graph.
      hardware: devices and links.
      seconds: time of each op on each device, `[N, D]`, s.
      allowed: whether each op may run on each device, bool `[N, D]`.
      keys: one candidate, without padding rows.
      recipe: settings that `cases` drew.
    """

    graph: Graph = dataclasses.field(repr=False)
    hardware: Hardware = dataclasses.field(repr=False)
    seconds: np.ndarray = dataclasses.field(repr=False)
    allowed: np.ndarray = dataclasses.field(repr=False)
    keys: Keys = dataclasses.field(repr=False)
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)

    def problem(self, shape: Shape) -> Problem:
        """Return the problem, padded to `shape`."""
        padded = padding.pad(self.graph, shape)
        return prepare(padded, self.hardware, seconds=self.seconds, allowed=self.allowed)

    def padded_keys(self, shape: Shape, fill: float = 0.0) -> Keys:
        """Return the candidate for `problem(shape)`; keys of padding rows are `fill`."""
        return pad_keys(self.keys, shape, fill)


def pad_keys(keys: Keys, shape: Shape, fill: float = 0.0) -> Keys:
    """Return keys with padding rows; with the default `fill` these would be issued first."""

    def rows(values: Any, count: int) -> np.ndarray:
        padded = np.full((count, *values.shape[1:]), fill, np.float32)
        padded[: len(values)] = values
        return padded

    return Keys(
        device=rows(keys.device, shape.ops),
        priority=rows(keys.priority, shape.ops),
        transfer=rows(keys.transfer, shape.tensors),
    )


# Graphs.


def _limit(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return sizes that sum to the largest int32."""
    cuts = np.sort(rng.integers(0, MAX_UNITS + 1, max(count - 1, 0)))
    return np.diff(cuts, prepend=0, append=MAX_UNITS)[:count]


SIZES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "small": lambda rng, n: rng.integers(0, 20, n) * rng.integers(0, 2, n),
    "zero": lambda rng, n: np.zeros(n),
    "distinct": lambda rng, n: 3 ** np.arange(n) % 10007,
    "huge": lambda rng, n: rng.integers(0, 2**44, n),
    "limit": _limit,
}

TIMES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "whole": lambda rng, shape: rng.integers(0, 6, shape),
    "zero": lambda rng, shape: np.zeros(shape),
    "real": lambda rng, shape: rng.exponential(size=shape),
    "mixed": lambda rng, shape: 10.0 ** rng.uniform(-9, 3, shape) * rng.integers(0, 2, shape),
    "huge": lambda rng, shape: rng.integers(0, 2**50, shape),
}

OUTPUTS = (0, 1, 1, 1, 2, 4)  # numbers of tensors that a random op may produce
INPUTS, PINNED = 0.2, 0.25  # shares of input ops and of pinned tensors


def random_graph(
    rng: np.random.Generator, num_ops: int, density: float, sizes: str = "small"
) -> Graph:
    """Return a random graph within `SMALL`, with unread tensors and several outputs per op."""
    assert num_ops < SMALL.ops
    producer = np.repeat(np.arange(num_ops), rng.choice(OUTPUTS, num_ops))
    producer = np.sort(rng.permutation(producer)[: SMALL.tensors - 1])
    kind = np.where(rng.random(num_ops) < INPUTS, INPUT, UNKNOWN)
    uses = [
        (t, i)
        for t in range(len(producer))
        for i in range(producer[t] + 1, num_ops)
        if kind[i] != INPUT and rng.random() < density
    ]
    uses = [uses[i] for i in rng.permutation(len(uses))[: SMALL.uses - 1]]
    size = SIZES[sizes](rng, len(producer))
    # Sizes at the limit leave no memory for workspace, in units of one byte.
    workspace = 0 if sizes == "limit" else SIZES[sizes](rng, num_ops)
    return graphs.from_arrays(
        producer,
        size,
        [t for t, _ in uses],
        [i for _, i in uses],
        num_ops=num_ops,
        kind=kind,
        workspace=workspace,
        pinned=rng.random(len(producer)) < PINNED,
    )


def _chain() -> Graph:
    ops = [Op(outputs=(Output(1),))]
    ops += [Op(inputs=((i, 0),), outputs=(Output(i + 1),), workspace=i % 3) for i in range(21)]
    return graphs.from_ops(ops)


def _hub(readers: int) -> Graph:
    reader = Op(inputs=((0, 0),), outputs=(Output(1),))
    return graphs.from_ops([Op("input", outputs=(Output(7),)), *[reader] * readers])


def _gather(makers: int) -> Graph:
    ops = [Op(outputs=(Output(i % 5),)) for i in range(makers)]
    return graphs.from_ops([*ops, Op(inputs=tuple((i, 0) for i in range(makers)))])


def _broadcast() -> Graph:
    """Return a graph in which one op produces four tensors that 16 ops read."""
    maker = Op(outputs=(Output(4), Output(0), Output(9, pinned=True), Output(2)))
    readers = [Op(inputs=tuple((0, k) for k in range(i % 4 + 1))) for i in range(16)]
    return graphs.from_ops([maker, *readers])


NASTY: dict[str, Callable[[], Graph]] = {
    "one op": lambda: graphs.from_ops([Op()]),
    "one input": lambda: graphs.from_ops([Op("input", outputs=(Output(5),), workspace=3)]),
    "one op, unread and pinned": lambda: graphs.from_ops(
        [Op(outputs=(Output(3), Output(4, pinned=True)), workspace=2)]
    ),
    "no tensors": lambda: graphs.from_ops([Op(workspace=i) for i in range(20)]),
    "no edges": lambda: graphs.from_ops([Op(outputs=(Output(i),)) for i in range(20)]),
    "inputs only": lambda: graphs.from_ops([Op("input", outputs=(Output(2),))] * 5),
    "chain": _chain,
    "broadcast": _broadcast,
    "hub": lambda: _hub(20),
    "gather": lambda: _gather(20),
}

HUBS: dict[str, Callable[[], Graph]] = {
    "1000 readers": lambda: _hub(1000),
    "1000 makers": lambda: _gather(1000),
}


# Machines.


def _random_channels(rng: np.random.Generator) -> Callable[[int], np.ndarray]:
    return lambda d: rng.integers(-1, d * d, (d, d)).astype(np.int32)


CHANNELS: dict[str, Callable[[np.random.Generator], Callable[[int], np.ndarray]]] = {
    "pair": lambda rng: pair_channels,
    "bus": lambda rng: bus_channels,
    "none": lambda rng: no_channels,
    "one": lambda rng: lambda d: np.full((d, d), d * d - 1, np.int32),
    "random": _random_channels,
}


def random_hardware(
    rng: np.random.Generator, devices: int, channel: str, synchronous: bool
) -> Hardware:
    """Return hardware whose pairs of devices differ in whole latencies and in bandwidths."""
    hardware = unit_rate_devices(devices, channel=CHANNELS[channel](rng), synchronous=synchronous)
    pairs = (devices, devices)
    return hardware._replace(
        latency=rng.integers(0, 3, pairs).astype(np.float64),
        bandwidth=rng.choice([1.0, 2.0, np.inf], pairs),
    )


# Keys.

_HALF = np.float32(0.5)

KEYS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "uniform": lambda rng, shape: rng.random(shape, np.float32),
    "tied": lambda rng, shape: rng.integers(0, 5, shape) / 4,
    "equal": lambda rng, shape: np.full(shape, rng.choice([0.0, 0.3, 1.0])),
    "band": lambda rng, shape: _HALF + rng.integers(0, 9, shape).astype(np.float32) * _HALF**24,
    "ends": lambda rng, shape: rng.choice([0.0, -0.0, 1.0], shape),
    "tiny": lambda rng, shape: rng.choice([0.0, -0.0, 2.0**-126, 2.0**-125, 2.0**-100], shape),
}


def random_keys(rng: np.random.Generator, kind: str, shape: Shape, devices: int) -> Keys:
    """Return a candidate with keys of one kind in `KEYS`."""
    shapes = Keys((shape.ops, devices), (shape.ops,), (shape.tensors, devices))
    return Keys(*(KEYS[kind](rng, rows).astype(np.float32) for rows in shapes))


def random_case(
    rng: np.random.Generator,
    graph: Graph,
    devices: int,
    *,
    keys: str = "uniform",
    channel: str = "pair",
    synchronous: bool = False,
    times: str = "whole",
    allowed: float = 1.0,
) -> Case:
    """Return a case: a graph with random times, on random hardware, with a random candidate.

    `allowed` is the share of allowed (op, device) pairs. Each op has at least one.
    """
    rows = graphs.shape_of(graph)
    mask = rng.random((rows.ops, devices)) < allowed
    mask[np.arange(rows.ops), rng.integers(0, devices, rows.ops)] = True
    return Case(
        graph=graph,
        hardware=random_hardware(rng, devices, channel, synchronous),
        seconds=TIMES[times](rng, (rows.ops, devices)).astype(np.float64),
        allowed=mask,
        keys=random_keys(rng, keys, rows, devices),
    )


def nasty_cases(name: str, channel: str) -> Iterator[Case]:
    """Yield cases of one `NASTY` graph on three devices, with keys of all kinds."""
    rng = np.random.default_rng(0)
    for keys in KEYS:
        for synchronous in (False, True):
            yield random_case(
                rng, NASTY[name](), 3, keys=keys, channel=channel, synchronous=synchronous
            )


def on_nasty_graphs(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of `(name, channel)` on the arguments of `nasty_cases`."""
    each = pytest.mark.parametrize("channel", CHANNELS)(test)
    return pytest.mark.parametrize("name", NASTY)(each)


@st.composite
def cases(draw: st.DrawFn, devices: int) -> Case:
    """Draw cases within `SMALL`; they shrink to few ops, few uses and the simplest settings."""
    recipe = {
        "num_ops": draw(st.integers(1, SMALL.ops - 1)),
        "density": draw(st.sampled_from([0.0, 0.05, 0.15, 0.4, 1.0])),
        "sizes": draw(st.sampled_from(list(SIZES))),
    }
    settings = {
        "keys": draw(st.sampled_from(list(KEYS))),
        "channel": draw(st.sampled_from(list(CHANNELS))),
        "synchronous": draw(st.booleans()),
        "times": draw(st.sampled_from(list(TIMES))),
        "allowed": draw(st.sampled_from([1.0, 0.6, 0.0])),
    }
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    case = random_case(rng, random_graph(rng, **recipe), devices, **settings)
    return dataclasses.replace(case, recipe=recipe | settings | {"seed": seed})
