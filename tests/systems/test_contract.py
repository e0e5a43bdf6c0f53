"""One contract for all learned systems: each trains, is saved, loaded and acts in the same way."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, execution, objectives
from gopt.cost.schedule.problem import prepare, stack
from gopt.graph import padding
from gopt.graph.graph import Shape
from gopt.graph.tracing import trace
from gopt.learning import train
from gopt.program.program import trace_program
from gopt.rewriting.cost.costs import roofline
from gopt.rewriting.ir.from_program import terms_of_program
from gopt.rewriting.ir.terms import Terms
from gopt.sources.synthetic import layered
from gopt.systems.one_graph import placement_cost

SYSTEMS = ("regal", "go", "hdp", "placeto", "local_advantage", "xrlflow")
STEPS, SHAPE = 10, Shape(24, 24, 96)
POSITIONAL = {
    "inputs": ("graph", "problem"),
    "init": ("key", "inputs"),
    "act": ("key", "params", "inputs"),
    "loss": ("params", "batch"),
    "step": ("state", "key", "batch"),
    "search": ("key", "problem", "params"),
    "load": ("path",),
    "save": ("path", "params", "settings", "origin"),
}
KEYWORDS: dict[str, set[str]] = {name: {"settings"} for name in POSITIONAL} | {
    "search": {"objective", "evaluations", "settings"},
    "load": set(),
    "save": set(),
}
# What a system needs besides, always by keyword.
MORE = {
    ("regal", "inputs"): {"objective"},  # the guide depends on it
    ("regal", "step"): {"objective", "evaluations", "samples"},
    ("regal", "load"): {"objective", "devices"},  # a policy ships for each objective
    ("regal", "save"): {"objective", "devices"},
    ("go", "act"): {"decision", "timing", "embedding"},  # it improves decisions
    ("go", "step"): {"objective", "simulate"},
    ("go", "search"): {"run"},  # its loop can run in slices
    ("local_advantage", "act"): {"decisions"},  # it ranks changes of decisions
    ("local_advantage", "search"): {"start"},
}


def system_of(name: str) -> Any:
    return importlib.import_module(f"gopt.systems.{name}")


@pytest.mark.parametrize("function", POSITIONAL)
@pytest.mark.parametrize("name", SYSTEMS)
def test_arguments_have_the_same_names_and_order_in_all_systems(name, function):
    parameters = inspect.signature(getattr(system_of(name), function)).parameters
    kinds = {kind: [] for kind in inspect._ParameterKind}
    for each in parameters.values():
        kinds[each.kind].append(each.name)
    assert tuple(kinds[inspect.Parameter.POSITIONAL_OR_KEYWORD]) == POSITIONAL[function]
    more = MORE.get((name, function), set())
    if function == "search" and name != "xrlflow":  # that reads its inputs on the way
        more = more | {"inputs"}
    assert set(kinds[inspect.Parameter.KEYWORD_ONLY]) == KEYWORDS[function] | more
    assert not kinds[inspect.Parameter.VAR_KEYWORD] and not kinds[inspect.Parameter.VAR_POSITIONAL]


def test_the_package_does_not_need_the_experiments():
    for path in Path(gopt.__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert not line.lstrip().startswith(("import experiments", "from experiments")), path


class Case(NamedTuple):
    """A system that is ready to be trained on two graphs."""

    settings: Any
    inputs: Any  # of the first graph
    problem: Any  # the same
    state: Any
    batch: Callable[[int, Any], Any]  # of a step, given its index and the state
    step: Callable[..., Any]
    act: Callable[[Any, Any], Any]  # maps parameters and settings to an action


@cache
def graphs() -> tuple[Any, Any]:
    return tuple(padding.pad(layered(seed, 14), SHAPE) for seed in (0, 1))


@cache
def problems() -> tuple[Any, Any]:
    machine = unit_rate_devices(2, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)
    return tuple(prepare(graph, machine) for graph in graphs())


def common(system: Any, settings: Any) -> tuple[list[Any], Any]:
    """Returns inputs of both graphs, and first parameters."""
    pairs = zip(graphs(), problems(), strict=True)
    found = [system.inputs(*pair, settings=settings) for pair in pairs]
    found = jax.device_put(found)
    init = jax.jit(partial(system.init, settings=settings))
    return found, init(jax.random.key(0), found[0])


def acting(system: Any, inputs: Any) -> Callable[[Any, Any], Any]:
    return lambda params, settings: system.act(jax.random.key(1), params, inputs, settings=settings)


def regal_case(system: Any) -> Case:
    settings = system.Settings(width=8, rounds=1, steps=STEPS)
    inputs, params = common(system, settings)
    standard = system.standard_costs(
        jax.random.key(0), stack(problems()), objective="makespan", evaluations=20, seeds=1
    )
    rows = zip(problems(), inputs, standard, strict=True)
    examples = [jax.tree.map(jnp.asarray, system.Example(*row)) for row in rows]
    state = system.start(params, settings=settings)
    step = partial(system.step, evaluations=20, samples=2)
    act = acting(system, inputs[0])
    return Case(settings, inputs[0], problems()[0], state, lambda *_: examples, step, act)


def go_case(system: Any) -> Case:
    settings = system.Settings(
        tasks=("placement", "scheduling"),
        **dict(width=8, heads=2, segment=8, levels=(8,), iterations=2, epochs=1, samples=4),
    )
    inputs, params = common(system, settings)
    # Scores begin with zeros: at these the entropy is the largest, and its gradient is zero.
    params = jax.tree.map(
        lambda x: np.float32(x + 0.1 * np.sin(np.arange(x.size)).reshape(x.shape)), params
    )
    starts, orders = [], []

    @jax.jit
    def begin(problem: Any, order: Any) -> Any:
        simulator = system.simulator_of(problem, "makespan", order)
        return system.begin(problem, jnp.arange(SHAPE.ops) % 2, simulator)

    for problem in problems():
        orders.append(system.critical_path_order(problem))
        starts.append(begin(problem, orders[-1]))
    rows = [system.Searches(*row) for row in zip(problems(), inputs, orders, starts, strict=True)]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    simulator = system.simulator_of(problems()[0], "makespan", orders[0])
    decision = starts[0].decision
    how = {"decision": decision, "timing": jax.jit(simulator.timing)(decision)}

    def act(params: Any, settings: Any) -> Any:
        return system.act(jax.random.key(1), params, inputs[0], settings=settings, **how)

    state = system.start(params, settings=settings)
    step = jax.jit(partial(system.step), static_argnames="settings")
    return Case(settings, inputs[0], problems()[0], state, lambda *_: batch, step, act)


def one_graph_case(system: Any, settings: Any) -> Case:
    """A system that learns on the graph that it places: five steps on each."""
    inputs, params = common(system, settings)
    tasks = [
        system.Task(one, placement_cost(problem, "makespan"))
        for one, problem in zip(inputs, problems(), strict=True)
    ]
    state = system.start(params, tasks[0], settings=settings)
    step = jax.jit(system.step, static_argnames="settings")
    act = acting(system, inputs[0])
    return Case(settings, inputs[0], problems()[0], state, lambda k, _: tasks[k // 5], step, act)


def hdp_case(system: Any) -> Case:
    return one_graph_case(system, system.Settings(per_device=2, hidden=8, width=8))


def placeto_case(system: Any) -> Case:
    return one_graph_case(system, system.Settings(groups=4, rounds=1, steps=STEPS))


def local_advantage_case(system: Any) -> Case:
    settings = system.Settings(width=8, rounds=1, steps=STEPS, configurations=2)
    batches, inputs, fusion = [], [], []
    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    functions = (lambda x: jnp.tanh(jnp.exp(x) + x) * x, lambda x: jnp.exp(x @ x) - jnp.sin(x))
    for graph in (padding.pad(trace(fn, square).graph, SHAPE) for fn in functions):
        problem = prepare_fusion(graph, unit_rate_devices(1))
        fusion.append(problem)
        inputs.append(system.inputs(graph, problem, settings=settings))
        sampling = system.Sampling(chains=2, records=2)
        default = np.zeros(len(problem.compute), bool)
        records = system.sample(jax.random.key(0), problem, default, sampling=sampling)
        found = system.samples(inputs[-1], problem.configurable, records, settings=settings)
        batches.append(jax.tree.map(jnp.asarray, found))
    params = system.init(jax.random.key(0), inputs[0], settings=settings)
    state = system.start(params, settings=settings)
    step = jax.jit(system.step, static_argnames="settings")
    act = acting(system, inputs[0])
    return Case(settings, inputs[0], fusion[0], state, lambda k, _: batches[k % 2], step, act)


def xrlflow_case(system: Any) -> Case:
    settings = system.Settings(width=8, layers=1, summary=8, hidden=(8,), horizon=4, batch=4)
    square = jax.ShapeDtypeStruct((8, 8), jnp.float32)

    def one(w: Any, x: Any) -> Any:
        return jax.nn.relu(x @ w[0]) + x @ w[1]

    def other(w: Any, x: Any) -> Any:
        return (x @ w[0]) @ w[1] + x

    envs, rewritings = [], []
    for fn in (one, other):
        terms = Terms()
        roots = terms_of_program(
            terms, trace_program(fn, [square] * 2, square), [True, True, False]
        )
        rewritings.append(system.Rewriting(terms, tuple(roots), roofline()))
        terms, roots, cost, rules = rewritings[-1]
        env = system.RewriteEnv(terms, roots, lambda _: 1.0, cost=cost, rules=rules)
        env.settings = settings
        envs.append(env)
    problem = rewritings[0]
    inputs = system.inputs(problem.terms, problem, settings=settings)
    params = system.init(jax.random.key(0), inputs, settings=settings)
    choose = system.policy(settings)

    def batch(index: int, state: Any) -> Any:
        env, rng = envs[index % 2], np.random.default_rng(index)
        episode = system.play(env, choose, state.params, rng)
        return system.batches([(episode, env.size)], rng, settings)[0]

    state = system.start(params, settings=settings)
    return Case(settings, inputs, problem, state, batch, system.step, acting(system, inputs))


CASES = {
    "regal": regal_case,
    "go": go_case,
    "hdp": hdp_case,
    "placeto": placeto_case,
    "local_advantage": local_advantage_case,
    "xrlflow": xrlflow_case,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_trains_ten_steps_on_two_graphs_is_saved_loaded_and_acts(name, tmp_path):
    if name == "xrlflow":
        pytest.importorskip("gymnasium")
    system = system_of(name)
    case = CASES[name](system)

    def step(index: int, state: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0), index)
        return case.step(state, key, case.batch(index, state), settings=case.settings)

    described = {"settings": dataclasses.asdict(case.settings)}
    state, history = train.run(
        case.state, step_metrics(step), steps=STEPS, folder=tmp_path / "run", described=described
    )
    assert len(history) == STEPS == state.step
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    params = jax.device_get(state.params)
    first = jax.device_get(case.state.params)
    moved = jax.tree.map(lambda x, y: np.abs(np.asarray(x) - y).max(initial=0), params, first)
    assert max(jax.tree.leaves(moved)) > 0
    path = tmp_path / "policy.npz"
    labels = {"objective": "makespan", "devices": 2} if name == "regal" else {}
    system.save(path, params, case.settings, {"steps": STEPS}, **labels)
    loaded, settings = system.load(path)
    assert settings == case.settings
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    ours, theirs = case.act(params, case.settings), case.act(loaded, settings)
    assert jax.tree.leaves(ours)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    inputs = {} if name == "xrlflow" else {"inputs": case.inputs}
    result = system.search(
        jax.random.key(2),
        case.problem,
        loaded,
        objective="makespan",
        evaluations=60,
        settings=settings,
        **inputs,
    )
    assert np.isfinite(result.cost) and result.cost == np.asarray(result.history)[-1]
    assert (np.diff(np.asarray(result.history, np.float64)) <= 0).all()
    if isinstance(result.best, decoding.Keys):
        again = objectives.objective(
            case.problem, execution.evaluate(case.problem, result.best), "makespan"
        )
        assert again == result.cost


def step_metrics(step: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    """Returns a step with scalar metrics only."""

    def only_numbers(index: int, state: Any) -> Any:
        state, metrics = step(index, state)
        assert isinstance(metrics, dict) and metrics
        return state, {name: value for name, value in metrics.items() if name != "reached"}

    return only_numbers
