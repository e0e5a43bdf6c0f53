import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.cost.hardware import no_channels, unit_rate_devices
from gopt.heuristics import keys_from_items
from gopt.heuristics.schedule import baselines
from gopt.heuristics.schedule.orders import memory_orders
from gopt.learning.graphs import OP_FEATURES, to_graphs_tuple
from gopt.plots.units import format_bytes, format_seconds
from gopt.scheduling import best
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.searches import SEARCHES
from gopt.systems import go, regal
from gopt.systems.go import scheduling as go_scheduling
from tests.reference import execution as reference

pytestmark = pytest.mark.small

SMALL = {"hardware": "2xh100", "evaluations": 80}  # of which GO's starts take 63


def loss(w, x):
    return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w.T) @ w)


GRADIENT = jax.grad(loss)


def kernels():
    """The padded graph that is scheduled."""
    result = gopt.schedule(GRADIENT, *arguments(), hardware="2xh100", search="heft")
    return gopt.pad(result.after.decision.traced.graph)


def arguments(rows=256):
    return (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((128, 128), (rows, 128)))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Policies with random weights, in the file formats of the ones that ship."""
    settings = regal.Settings(width=8, rounds=1)
    key, graph, folder = jax.random.key(0), kernels(), tmp_path_factory.mktemp("weights")
    paths = {"regal": folder / "regal_peak_memory.npz", "go": folder / "go.npz"}
    params = regal.init(key, regal.on_devices(to_graphs_tuple(graph), 2), settings=settings)
    regal.save(paths["regal"], params, settings, objective="peak_memory", devices=2)
    of_go = go.Settings(tasks=go.TASKS, width=8, heads=2, segment=16, levels=(8,))
    inputs = go.inputs(graph, gopt.prepare(graph, unit_rate_devices(2)), settings=of_go)
    go.save(paths["go"], go.init(key, inputs, settings=of_go), of_go)
    return paths


@pytest.fixture(scope="module")
def run(weights):
    def run(search, *, fn=GRADIENT, rows=256, **settings):
        policy = {"weights": weights[search]} if search in weights else {}
        options = {**SMALL, **policy, **settings}
        return gopt.schedule(fn, *arguments(rows), search=search, **options)

    return run


@pytest.fixture(scope="module")
def by_heuristics(run):
    """What each heuristic finds, whatever the objective."""
    return [run(name).after.decision for name in gopt.HEURISTICS]


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_costs_are_those_of_the_plain_reference(run, search):
    result = run(search)
    before, after = result.before.decision, result.after.decision
    problem, count = after.problem, int(after.problem.num_ops)
    in_order = keys_from_items(problem, [0] * count, range(count))
    for costs, keys in ((before, in_order), (after, after.keys)):
        expected = reference.run(problem, keys)
        assert costs.makespan == expected.makespan * float(problem.tick)
        assert costs.peak == tuple(peak * int(problem.unit) for peak in expected.peak)
    assert all(type(peak) is int for peak in after.peak)
    assert type(after.makespan) is float


def test_before_is_the_program_on_device_0(run):
    result = run("heft", hardware=unit_rate_devices(2, channel=no_channels))
    before = result.before.decision
    graph, reference = before.traced.graph, before.schedule
    assert reference.order[: graph.num_ops].tolist() == list(range(graph.num_ops))
    assert reference.num_items == graph.num_ops
    assert before.peak[1] == 0
    assert before.makespan == pytest.approx(np.maximum(graph.flops, graph.bytes).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "objective"),
    [("best", "peak_memory"), ("best", "makespan"), ("regal", "peak_memory"), ("go", "makespan")],
)
def test_a_search_is_not_worse_than_any_heuristic_nor_the_program(
    run, by_heuristics, search, objective, monkeypatch
):
    searched, inner = set(), go_scheduling._loop

    def watched(*args, iterations, **settings):
        searched.add(iterations)
        return inner(*args, iterations=iterations, **settings)

    monkeypatch.setattr(go_scheduling, "_loop", watched)

    def measure(costs: KernelSchedule) -> float:
        return max(costs.peak) if objective == "peak_memory" else costs.makespan

    best_of_others = min(map(measure, by_heuristics))
    for seed in range(3):
        result = run(search, objective=objective, seed=seed)
        assert measure(result.after.decision) <= best_of_others
        assert measure(result.after.decision) <= measure(result.before.decision)
    assert bool(searched) == (search == "go") and 0 not in searched  # not starts alone


@pytest.mark.slow
def test_searches_lower_their_objective(run):
    def branches(w, x):
        made = [jnp.tanh(x @ (w + k)) for k in range(20)]
        return [a.T @ b for a, b in zip(made, made[3:] + made[:3], strict=True)]

    few, many = (
        max(run("brkga", fn=branches, evaluations=n).after.decision.peak) for n in (100, 3000)
    )
    assert many < few


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "evaluations"), [("best", 1), ("brkga", 1), ("regal", 99), ("go", 1)]
)
def test_budgets_may_be_smaller_than_a_population(run, search, evaluations):
    assert max(run(search, evaluations=evaluations).after.decision.peak) > 0


@pytest.mark.slow
def test_the_orders_that_features_compare_count_as_evaluations(run, monkeypatch):
    spent = []
    search = regal.search_from

    def record(*args, evaluations, **settings):
        spent.append(evaluations)
        return search(*args, evaluations=evaluations, **settings)

    monkeypatch.setattr(regal, "search_from", record)
    problem = run("regal", evaluations=98).after.decision.problem
    assert spent == [98 - len(memory_orders.ORDERS) - baselines.tried(problem)]


@pytest.mark.slow
def test_objectives_differ(run):
    slow, fast = run("brkga"), run("brkga", objective="makespan")
    assert fast.after.decision.makespan < slow.after.decision.makespan
    assert max(slow.after.decision.peak) < max(fast.after.decision.peak)


@pytest.mark.parametrize("search", ["brkga", "regal"])
def test_seed_decides(run, search, monkeypatch):
    # Else a heuristic is the best of this small graph, whatever the seed.
    monkeypatch.setattr(baselines, "heuristic_keys", lambda problem: worst(problem))
    one, same, other = (run(search, seed=seed).after.decision.keys.priority for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def worst(problem: gopt.Problem) -> gopt.Keys:
    """Keys of as many candidates, all on one device and in no order."""
    shapes, count = gopt.keys_shape(problem), len(gopt.HEURISTICS) + 1
    return jax.tree.map(lambda x: np.zeros((count, *x.shape), np.float32), shapes)


@pytest.mark.slow
def test_policy_decides(run, tmp_path, monkeypatch):
    """A policy that puts the priorities into the reversed order of the one that it is told."""
    actions = []
    search = best.search

    def record(*args, initial, settings, **rest):
        actions.append((initial.action.genes[:, -1], settings))
        return search(*args, initial=initial, settings=settings, **rest)

    monkeypatch.setattr(best, "search", record)
    settings = regal.Settings(width=8, rounds=1, trust=1.0, priority_deviation=0.0)
    graph = kernels()
    inputs = regal.on_devices(to_graphs_tuple(graph), 2)
    params = regal.init(jax.random.key(0), inputs, settings=settings)
    priority = regal.PLACES.index("priority")
    params["params"]["kernel"] = params["params"]["kernel"].at[:, priority].multiply(-1)
    path = tmp_path / "reversed.npz"
    regal.save(path, params, settings, objective="peak_memory", devices=2)
    n = int(graph.num_ops)
    run("regal", weights=path, evaluations=60)
    run("regal", evaluations=60)
    turn = inputs.graphs.nodes["features"][:n, OP_FEATURES.index("turn")]
    (found, sizes), (other, _) = actions
    assert sizes == settings
    assert np.corrcoef(found[:n, 0], turn)[0, 1] < -0.8
    assert np.corrcoef(other[:n, 0], turn)[0, 1] > 0.8


def test_donated_arguments_are_freed():
    kept, donated = (
        gopt.schedule(jnp.sin, jnp.zeros(9), hardware="2xh100", search="heft", donate_argnums=d)
        for d in ((), 0)
    )
    assert kept.after.decision.traced.graph.pinned.tolist() == [True, True]
    assert donated.after.decision.traced.graph.pinned.tolist() == [False, True]


def test_scans_are_unrolled_on_request():
    def fn(x):
        return jax.lax.scan(lambda c, _: (c @ c, None), x, length=5)[0]

    rolled, unrolled = (
        gopt.schedule(
            fn, jnp.ones((8, 8)), hardware="2xh100", search="heft", max_trips=trips
        ).after.decision.traced
        for trips in (0, 5)
    )
    assert len(rolled.names) == 2
    assert len(unrolled.names) == 6


def test_rows_name_all_ops_and_transfers(run):
    result = run(
        "etf", objective="makespan", hardware=unit_rate_devices(2, flop_rate=1e3, bandwidth=1e6)
    )
    rows = result.report.rows()
    ops = [row for row in rows if row.kind != "transfer"]
    assert sorted(row.name for row in ops) == sorted(result.after.decision.traced.names)
    sent = [row for row in rows if row.kind == "transfer"]
    assert sent
    home = {row.name: row.device for row in ops}
    unique = [row for row in sent if result.after.decision.traced.names.count(row.name) == 1]
    assert unique
    assert all(home[row.name] != row.device for row in unique)
    assert max(row.end for row in rows) == result.after.decision.makespan
    assert all(0 <= row.start <= row.end for row in rows)
    assert all(row.start == row.end for row in rows if row.kind == "input")


def test_summary_names_what_it_says(run):
    result = run("greedy_release")
    text = str(result)
    assert "peak_memory of" in text
    assert "by greedy_release" in text
    assert format_seconds(result.before.decision.makespan) in text
    assert format_bytes(max(result.after.decision.peak)) in text
    assert "more memory" not in text


def test_summary_says_what_does_not_fit(run):
    result = run("heft", hardware=unit_rate_devices(2, capacity=2.0**18))
    assert not result.before.decision.fits
    assert "before: needs more memory than the devices have" in str(result)


def test_the_table_has_costs_by_the_model(run):
    result = run("greedy_release")
    peaks = [max(candidate.decision.peak) for candidate in result.candidates]
    assert [row["predicted"] for row in result.table()] == peaks
    assert repr(result) == "<Result of gopt.schedule: 'greedy_release' of 2 candidates>"
    assert "<td>greedy_release</td>" in result._repr_html_()


@pytest.mark.parametrize(
    "trace", [jax.jit, lambda f: jax.grad(lambda *args: f(*args).sum()), jax.vmap]
)
def test_a_function_on_several_devices_refuses_tracers_by_name(run, trace):
    placed = run("heft").apply(devices=2 * jax.devices()[:1])
    args = jnp.ones((1, 128, 128)), jnp.ones((1, 256, 128))
    args = args if trace is jax.vmap else [x[0] for x in args]
    with pytest.raises(ValueError, match=r"args\[0\] is a tracer: a function in stages on several"):
        trace(placed)(*args)


def test_a_function_on_several_devices_refuses_calls_inside_jit(run):
    placed = run("heft").apply(devices=2 * jax.devices()[:1])
    args = jnp.ones((128, 128)), jnp.ones((256, 128))  # captured: not tracers
    with pytest.raises(ValueError, match="the call is traced: a function in stages on several"):
        jax.jit(lambda x: placed(*args) + x)(0.0)


def test_a_function_on_several_devices_is_not_nested(run):
    with pytest.raises(ValueError, match="nested is given: expected False, a function on 2"):
        run("heft").apply(nested=True)
    with pytest.raises(ValueError, match="constants are given: expected none"):
        run("heft").apply(constants={})


def test_plot_shows_before_and_after(run, tmp_path):
    figure = run("heft").plot()
    assert [ax.get_xlabel() for ax in figure.axes] == ["time (µs)", "", "items issued"]
    labels = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert [label.split(",")[0] for label in labels] == ["before", "after"]


@pytest.mark.slow
@pytest.mark.parametrize("search", ["best", "brkga", "regal", "go"])
def test_programs_are_compiled_once_for_each_bucket(run, search, caplog):
    run(search)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        result = run(search, seed=1)
        other = run(search, fn=lambda w, x: jax.grad(loss)(w, jnp.exp(x)), rows=512)
    assert other.after.decision.problem.shape == result.after.decision.problem.shape
    assert other.after.decision.traced.graph.num_ops != result.after.decision.traced.graph.num_ops
    compiled = [r.message for r in caplog.records if r.message.startswith("Compiling")]
    # What is scheduled is compiled itself, to see what XLA fuses.
    assert [message for message in compiled if "jit(function)" not in message] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": "magic"}, "search is 'magic': expected one of best, regal, go, brkga, heft"),
        ({"objective": "money"}, "objective is 'money': expected one of peak_memory, makespan"),
        ({"evaluations": 0}, "evaluations is 0: expected a whole number, 1 at least"),
        ({"hardware": 3}, "hardware is 3: expected a gopt.Hardware or a name"),
        ({"hardware": "abacus"}, "hardware is 'abacus': expected one of 2xh100"),
        ({"hardware": unit_rate_devices(1)._replace(launch=[-1.0])}, r"launch\[0\] is -1.0"),
        ({"donate_argnums": 7}, "donate_argnums"),
        (
            {"search": "regal", "hardware": unit_rate_devices(3)},
            "policies that ship are for 2 devices, the problem has 3",
        ),
    ],
)
def test_bad_input(settings, message):
    with pytest.raises(ValueError, match=message):
        gopt.schedule(GRADIENT, *arguments(), **{"hardware": "2xh100", **settings})


def test_policy_of_another_number_of_devices(run):
    with pytest.raises(ValueError, match="holds weights with devices 2: expected 4"):
        run("regal", hardware="4xh100")


def test_units():
    assert [format_seconds(t) for t in (0, 2e-9, 1.5e-6, 0.25, 12)] == [
        *("0.000 ns", "2.000 ns", "1.500 µs", "250.000 ms", "12.000 s"),
    ]
    assert [format_bytes(b) for b in (0, 1023, 1024, 1.5 * 2**20, 2**31)] == [
        *("0 B", "1023 B", "1.00 KiB", "1.50 MiB", "2.00 GiB"),
    ]
