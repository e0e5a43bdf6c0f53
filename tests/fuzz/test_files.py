"""Mutated files of each format are read as something valid, or refused with a `ValueError`.

All are in the slow tier, where each format gets some hundred files. More are tried with

    GOPT_FUZZ=100000 GOPT_FUZZ_SEED=1 pytest -s tests/fuzz/test_files.py
"""

import json
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.graph import padding
from gopt.graph.files import load as load_graph
from gopt.graph.files import save as save_graph
from gopt.graph.graph import check
from gopt.learning.weights import one_op
from gopt.program.program import trace_program
from gopt.result import save_plan
from gopt.sources import cost_graph, hlo, instances
from gopt.systems import go, hdp, local_advantage, placeto, regal, xrlflow
from tests.fuzz.mutate import ARCHIVE, JSON, TEXT, Mutation, mutated
from tests.graph.test_graph import sample, two_ops
from tests.plans import X, function, plans
from tests.sources.test_cost_graph import ALIAS, DIAMOND, PARTITIONS
from tests.sources.test_hlo import ASYNC, CNN, cnn_step, scan, shape
from tests.sources.test_instances import MAKESPAN, NETWORK, PEAK

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("GOPT_FUZZ", "0"))
SEED = int(os.environ.get("GOPT_FUZZ_SEED", "0"))
SECONDS = 10.0  # for one file


class Format(NamedTuple):
    """A format of files.

    Attributes:
      seeds: makes contents of valid files.
      mutations: kinds of changes.
      read: reads a file, and checks what it says.
      count: number of files in a short run.
    """

    seeds: Callable[[Path], Sequence[bytes]]
    mutations: Sequence[Mutation]
    read: Callable[[Path], Any]
    count: int


def read_cost_graph(path: Path) -> None:
    graph, seconds = cost_graph.load(path)
    check(graph)
    assert seconds.shape == (int(graph.num_ops),)
    assert np.isfinite(seconds).all() and (seconds >= 0).all()


def hlo_texts(_: Path) -> list[bytes]:
    lowered = [
        jax.jit(cnn_step, donate_argnums=0).lower(*CNN),
        jax.jit(scan).lower(shape(16, 16), shape(4, 16), shape(7, 4, 16)),
        jax.jit(lambda i, x: jax.lax.switch(i, [jnp.exp, jnp.sin], x[2:])).lower(
            shape(dtype=jnp.int32), shape(32, 32)
        ),
    ]
    texts = [text for one in lowered for text in (one.as_text("hlo"), one.compile().as_text())]
    return [text.encode() for text in (ASYNC, *texts)]


def read_hlo(path: Path) -> None:
    check(hlo.hlo_graph(path.read_text(errors="surrogateescape")))


def read_instance(path: Path) -> None:
    try:
        instance = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError("the reader gets parsed JSON") from None
    kind = instance.get("kind") if isinstance(instance, dict) else None
    if kind == "makespan":
        found = instances.makespan_instance(instance, instance.get("processors"))
    elif kind == "memory":
        found = instances.peak_memory_instance(instance)
    else:
        found = instances.profiled_step(instance)
    check(found.graph)
    assert found.seconds.shape == (int(found.graph.num_ops),)
    assert np.isfinite(found.seconds).all() and (found.seconds >= 0).all()


def instance_texts(_: Path) -> list[bytes]:
    rows = (
        MAKESPAN | {"kind": "makespan", "processors": 2},
        PEAK | {"kind": "memory"},
        NETWORK | {"kind": "profile"},
    )
    return [json.dumps(row).encode() for row in rows]


def graph_files(folder: Path) -> list[bytes]:
    graphs = (two_ops(), padding.pad(sample(9)), padding.stack([sample(3), sample(5)]))
    for k, graph in enumerate(graphs):
        save_graph(folder / f"{k}.npz", graph)
    return [(folder / f"{k}.npz").read_bytes() for k in range(len(graphs))]


def read_graph(path: Path) -> None:
    graph = load_graph(path)
    save_graph(path, graph)
    for a, b in zip(load_graph(path), graph, strict=True):
        np.testing.assert_array_equal(a, b)


def plan_texts(name: str, folder: Path) -> list[bytes]:
    verb, plan = plans()[name]
    save_plan(folder / name, verb, plan)
    return [(folder / name).read_bytes()]


@cache
def program() -> Any:
    return trace_program(function, X)


def read_plan(path: Path) -> None:
    plan = gopt.load(path)
    verb = json.loads(path.read_bytes())["verb"]
    save_plan(path, verb, plan)
    assert gopt.load(path) == plan
    if verb == "rewrite":
        terms, before, after = plan._read(program())
        assert [terms.shapes[k] for k in after] == [terms.shapes[k] for k in before]
    elif verb == "schedule":
        assert len(plan.kernels(program()).equations) == len(plan.groups)


def weight_files(system: Any, folder: Path) -> list[bytes]:
    own = system.weights.FORMAT
    if own.shipped:
        return [own.shipped.get("makespan", own.find(None)).read_bytes()]
    small = {"groups": 4, "hidden": 8, "width": 8} if system is hdp else {"groups": 4, "rounds": 1}
    settings = system.Settings(**small)
    inputs = system.inputs(*one_op(2), settings=settings)
    params = system.init(jax.random.key(0), inputs, settings=settings)
    system.save(folder / "weights.npz", params, settings)
    return [(folder / "weights.npz").read_bytes()]


def read_weights(system: Any, path: Path) -> None:
    params, settings = system.load(path)
    assert isinstance(settings, system.Settings)
    for leaf in jax.tree.leaves(params):
        assert leaf.dtype == np.float32 and np.isfinite(leaf).all()


METADATA = f"cost_graph {{ {PARTITIONS} }} step_stats {{ dev_stats {{ device: 'cpu' }} }}"
SYSTEMS = {"regal": regal, "go": go, "hdp": hdp, "placeto": placeto}
SYSTEMS |= {"local_advantage": local_advantage, "xrlflow": xrlflow}
FORMATS = {
    "cost graph": Format(
        lambda _: [
            text.encode()
            for text in (
                DIAMOND,
                ALIAS,
                PARTITIONS,
                f"cost_graph {{ {PARTITIONS} }} step_stats {{ }}",
            )
        ],
        TEXT,
        read_cost_graph,
        1500,
    ),
    "HLO": Format(hlo_texts, TEXT, read_hlo, 500),
    "instance": Format(instance_texts, JSON, read_instance, 2000),
    "graph": Format(graph_files, ARCHIVE, read_graph, 500),
    **{
        f"plan of {name}": Format(partial(plan_texts, name), JSON, read_plan, 400)
        for name in ("schedule", "placement", "fuse", "rewrite")
    },
    **{
        f"weights of {name}": Format(
            partial(weight_files, system), ARCHIVE, partial(read_weights, system), 25
        )
        for name, system in SYSTEMS.items()
    },
}


def result_of(read: Callable[[Path], Any], path: Path) -> str:
    """Return "read", "refused", or the error or the time that is a fault of the reader."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    begin = time.perf_counter()
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read(path)
        result = "read"
    except ValueError as error:
        result = "refused" if type(error) is ValueError else repr(error)
    except Exception as error:  # the fault that is looked for
        result = repr(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    seconds = time.perf_counter() - begin
    return result if seconds < SECONDS else f"{result} after {seconds:.0f} s"


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_valid_or_refused(tmp_path, name):
    seeds, mutations, read, count = FORMATS[name]
    contents = seeds(tmp_path)
    path = tmp_path / "mutated"
    for content in contents:
        path.write_bytes(content)
        read(path)
    found, failed = Counter[str](), []
    for case in range(COUNT or count):
        rng = np.random.default_rng((SEED, case))
        content = mutated(rng, contents[rng.integers(len(contents))], mutations)
        path.write_bytes(content)
        result = result_of(read, path)
        found[result if result in ("read", "refused") else "wrong"] += 1
        if result not in ("read", "refused"):
            failed.append(f"seed {SEED}, case {case}: {result[:300]}")
    print(f"{name}: {dict(found)}")
    assert not failed, "\n".join(failed[:20])
    assert found["refused"] > 0
