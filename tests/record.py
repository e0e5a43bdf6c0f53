"""Frozen record of results that no refactoring may change.

    python -m tests.record           # compare with tests/data/record.json; exit 1 on a difference
    python -m tests.record --write   # write a new file

Costs, decisions and rule matches are integers, and must be equal on every machine. Guide scores are
floats with three digits. XLA's plans depend on its version, so they are recorded for one version.
"""

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gopt
from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import decode
from gopt.cost.schedule.execution import evaluate, simulate
from gopt.cost.schedule.objectives import objective
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.padding import pad
from gopt.graph.tracing import trace
from gopt.heuristics import HEURISTICS
from gopt.program.program import trace_program
from gopt.rewriting.cost.costs import roofline
from gopt.rewriting.ir.from_program import terms_of_program
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.generated import generated
from gopt.rewriting.rules.matching import Matcher
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.taso import backtracking
from gopt.scheduling.searches import SEARCHES, Finder
from gopt.sources.instances import makespan_instance, peak_memory_instance
from gopt.sources.synthetic import erdos_renyi
from gopt.systems import go, local_advantage, regal, xrlflow
from gopt.workloads import WORKLOADS
from tests import strategies
from tests.cost.schedule.test_execution import golden

DATA = Path(__file__).parent / "data"
FILE = DATA / "record.json"
MODELS = ("squeezenet", "rnnlm", "mlp_mixer")


def digest(tree: Any) -> str:
    """Return a hash of integer and boolean arrays."""
    sha = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(leaf)
        assert array.dtype.kind in "iub", array.dtype
        sha.update(repr((array.shape, array.astype(np.int64).tolist())).encode())
    return sha.hexdigest()[:16]


def costs() -> dict[str, Any]:
    """Return costs of the golden problems and of 200 random ones, by every cost model."""
    found: dict[str, Any] = {}
    for synchronous in (False, True):
        problem, keys = golden(synchronous)
        found[f"golden, synchronous={synchronous}"] = costs_of(problem, keys)
    rows = []
    rng = np.random.default_rng(0)
    for index in range(200):
        graph = strategies.random_graph(rng, 4 + index % 20, 0.2)
        case = strategies.random_case(rng, graph, 3)
        rows.append(costs_of(case.problem(strategies.SMALL), case.padded_keys(strategies.SMALL)))
    found["200 random problems"] = digest([np.asarray(row["costs"]) for row in rows])
    found["200 schedules"] = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
    problem = prepare_fusion(erdos_renyi(0, 300), unit_rate_devices(1))
    fuse = np.random.default_rng(1).random((200, len(problem.compute))) < 0.5
    found["200 fusions"] = digest(jax.jit(jax.vmap(fusion_cost, (None, 0)))(problem, fuse))
    return found


@jax.jit
def _costs(problem: Problem, keys: Any) -> Any:
    schedule = simulate(problem, decode(problem, keys))
    return evaluate(problem, keys), dispatch.evaluate(problem, keys), schedule


def costs_of(problem: Problem, keys: Any) -> dict[str, Any]:
    """Return costs of one candidate, and a hash of its schedule."""
    cost, dispatched, schedule = _costs(problem, keys)
    row = [int(cost.makespan), *cost.peak.tolist(), int(dispatched.makespan)]
    return {"costs": row, "schedule": digest(schedule)}


def searches() -> dict[str, Any]:
    """Return costs of schedules by heuristics, searches and shipped policies on three graphs."""
    found: dict[str, Any] = {}
    for seed in range(3):
        graph = pad(erdos_renyi(seed, 60))
        problem = prepare(graph, unit_rate_devices(2))
        for method in SEARCHES:
            keys = Finder(method, None, 600, seed).find(graph, problem, "peak_memory")
            found[f"{method}, graph {seed}"] = costs_of(problem, keys)["costs"]
    return found


def policies() -> dict[str, Any]:
    """Return actions of the shipped policies on three graphs, and X-RLflow's rewrites."""
    found: dict[str, Any] = {}
    for seed in range(3):
        graph = pad(erdos_renyi(seed, 60))
        problem = prepare(graph, unit_rate_devices(2))
        for name in ("peak_memory", "makespan", "capped_makespan"):
            params, settings = regal.load(objective=name, devices=2)
            inputs = regal.inputs(graph, problem, settings=settings, objective=name)
            action = regal.act(None, params, inputs, settings=settings)
            found[f"regal {name}, graph {seed}"] = digest(action)
        params, settings = go.load()
        keys = go.search(
            jax.random.key(seed),
            problem,
            params,
            inputs=go.inputs(graph, problem, settings=settings),
            objective="makespan",
            evaluations=3000,
            settings=settings,
        ).best
        found[f"go, graph {seed}"] = costs_of(problem, keys)
        fusion = prepare_fusion(graph, unit_rate_devices(1))
        params, settings = local_advantage.load()
        graphs = local_advantage.inputs(graph, fusion, settings=settings)
        guide = local_advantage.guide(params, graphs, fusion.configurable, settings=settings)
        scores = np.asarray(guide(jnp.zeros(len(fusion.compute), jnp.int32)))
        finite = np.where(np.isfinite(scores), scores, 0)
        found[f"local advantage, graph {seed}"] = [f"{x:.3g}" for x in np.sort(finite)[-8:]]
        found[f"local advantage, best op, graph {seed}"] = int(np.argmax(scores))
    agent = xrlflow.agent(*xrlflow.load(), episodes=2)
    for name, (terms, roots) in programs().items():
        result = agent(terms, roots, roofline(), RULES)
        found[f"xrlflow, {name}"] = [*result.rewrites, f"{result.cost:.6g}"]
    return found


def programs() -> dict[str, tuple[Terms, tuple[int, ...]]]:
    """Return three programs as terms, by name."""

    def towers(w: Any, x: Any) -> Any:
        return jax.nn.relu(x @ w[0] @ w[1]) @ w[2] + x @ w[0]

    def images(w: Any, x: Any) -> Any:
        convolve = jax.lax.conv_general_dilated
        dimensions = ("NHWC", "HWIO", "NHWC")
        a, b = (convolve(x, k, (1, 1), "SAME", dimension_numbers=dimensions) for k in w)
        return jax.nn.relu(a) + jax.nn.relu(b)

    def attention(w: Any, x: Any) -> Any:
        q, k, v = (x @ each for each in w)
        return jax.nn.softmax(q @ k.T) @ v

    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, 8, 8), jnp.float32)
    image = jax.ShapeDtypeStruct((2, 8, 8, 8), jnp.float32)
    found = {}
    for fn, weight, x, count in (
        (towers, square, square, 3),
        (images, kernel, image, 2),
        (attention, square, square, 3),
    ):
        terms, program = Terms(), trace_program(fn, [weight] * count, x)
        found[fn.__name__] = terms, terms_of_program(terms, program, [True] * count + [False])
    return found


def rewriting() -> dict[str, Any]:
    """Return matches of all rules in three programs, and the rewrites of TASO's search."""
    found: dict[str, Any] = {}
    for name, (terms, roots) in programs().items():
        matches = Matcher(terms, (*RULES, *generated())).matches(roots)
        found[f"matches, {name}"] = dict(sorted(Counter(m.rule.name for m in matches).items()))
        result = backtracking(terms, roots, roofline(), RULES)
        found[f"taso, {name}"] = [*result.rewrites, f"{result.cost:.6g}"]
    return found


def yardsticks() -> dict[str, Any]:
    """Return objectives of heuristics on the instances in tests/data."""
    found: dict[str, Any] = {}
    for file, name in (("makespan", "makespan"), ("peak_memory", "peak_memory")):
        for row in json.loads((DATA / f"{file}.json").read_text()):
            if file == "makespan":
                counts = [row["processors"]] if "processors" in row else map(int, row["results"])
                instances = [makespan_instance(row, count) for count in counts]
            else:
                instances = [peak_memory_instance(row)]
            for instance in instances:
                problem = prepare(pad(instance.graph), instance.hardware, seconds=instance.seconds)
                label = f"{row['name']}, {problem.num_devices} devices"
                found[label] = {
                    method: float(objective(problem, evaluate(problem, heuristic(problem)), name))
                    for method, heuristic in HEURISTICS.items()
                }
    return found


def graphs() -> dict[str, Any]:
    """Return the sizes of the graphs of three models: ops, tensors, uses and flop."""
    found: dict[str, Any] = {}
    for name in MODELS:
        model, shapes = WORKLOADS[name]().forward()
        graph = trace(model, *shapes).graph
        ops, flop = int(graph.num_ops), float(np.sum(graph.flops))
        found[name] = [ops, int(graph.num_tensors), int(graph.num_uses), f"{flop:.6g}"]
    return found


def plans() -> dict[str, Any]:
    """Return bytes that XLA plans for three models, by candidate of `gopt.schedule`."""
    found: dict[str, Any] = {}
    for name in MODELS:
        model, shapes = WORKLOADS[name]().forward()
        result = gopt.schedule(model, *shapes, evaluations=100, confirm=2)
        ours = [c for c in result.candidates if not c.name.endswith(", nested")]
        found[name] = {c.name: c.memory.without_arguments for c in ours if c.memory}
    return found


PARTS = (costs, searches, policies, rewriting, yardsticks, graphs)


def record() -> dict[str, Any]:
    """Return all parts; XLA's plans are labelled by JAX version and backend."""
    found = {part.__name__: part() for part in PARTS}
    found[f"plans, JAX {jax.__version__}, {jax.default_backend()}"] = plans()
    return json.loads(json.dumps(found))


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return one line for each difference."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted({*expected, *found})
            for line in differences(expected.get(key), found.get(key), f"{path}/{key}")
        ]
    return [] if expected == found else [f"{path}: {found} instead of {expected}"]


def main() -> int:
    found = record()
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    lines = differences(json.loads(FILE.read_text()), found)
    print("\n".join(lines) or "the record is as it was")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
