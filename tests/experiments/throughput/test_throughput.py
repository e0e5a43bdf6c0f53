"""What gopt's throughput is compared with computes the same, and the experiment runs."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, execution
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.problem import prepare
from gopt.measure.timing import Times
from gopt.search import brkga
from gopt.search.population import uniforms
from gopt.sources import synthetic
from tests import strategies
from tests.reference import execution as reference
from tests.strategies import HUBS, LARGE, NASTY, SMALL, WIDE, Case

pytest.importorskip("numba")

from experiments.throughput import __main__ as throughput
from experiments.throughput import dispatch, fusion, list_order, searches, timing
from experiments.throughput.graphs import FAMILIES, GRAPHS
from experiments.throughput.peers import compiled, evolution, obvious

pytestmark = pytest.mark.slow

evaluate, evaluate_obvious = jax.jit(execution.evaluate), jax.jit(obvious.evaluate)


def check_compiled(case: Case, shape: strategies.Shape, queue: str, **asked: bool) -> None:
    problem, keys = case.problem(shape), case.padded_keys(shape)
    expected = reference.run(problem, keys)
    population = jax.tree.map(lambda leaf: np.stack([leaf] * 3), keys)
    found = compiled.evaluate(compiled.tables(problem), population, queue=queue, **asked)
    if asked.get("makespan", True):
        np.testing.assert_array_equal(found.makespan, [expected.makespan] * 3)
    if asked.get("peak", True):
        np.testing.assert_array_equal(found.peak, [expected.peak] * 3)


@pytest.mark.parametrize("queue", compiled.QUEUES)
@pytest.mark.parametrize("devices", (1, 2, 3))
def test_the_compiled_decoder_agrees_with_the_reference(queue, devices):
    @settings(max_examples=60, deadline=None)
    @given(strategies.cases(devices))
    def check(case: Case) -> None:
        check_compiled(case, WIDE, queue)

    check()


@pytest.mark.parametrize("asked", ({"makespan": False}, {"peak": False}))
@pytest.mark.parametrize("queue", compiled.QUEUES)
def test_the_compiled_decoder_computes_only_what_is_asked_for(queue, asked):
    @settings(max_examples=40, deadline=None)
    @given(strategies.cases(2))
    def check(case: Case) -> None:
        check_compiled(case, SMALL, queue, **asked)

    check()


@pytest.mark.parametrize("kind", strategies.KEYS)
@pytest.mark.parametrize("name", [*NASTY, *HUBS])
def test_nasty_graphs(name, kind):
    graph, shape = (NASTY[name](), SMALL) if name in NASTY else (HUBS[name](), LARGE)
    case = strategies.random_case(np.random.default_rng(0), graph, 2, keys=kind)
    problem, keys = case.problem(shape), case.padded_keys(shape)
    expected = evaluate(problem, keys)
    population = jax.tree.map(lambda leaf: leaf[None], keys)
    for queue in compiled.QUEUES:
        found = compiled.evaluate(compiled.tables(problem), population, queue=queue)
        assert found.makespan[0] == expected.makespan
        np.testing.assert_array_equal(found.peak[0], expected.peak)


@pytest.mark.parametrize("devices", (1, 3))
def test_the_obvious_loop_agrees_with_the_reference(devices):
    @settings(max_examples=60, deadline=None)
    @given(strategies.cases(devices))
    def check(case: Case) -> None:
        problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
        expected, found = reference.run(problem, keys), evaluate_obvious(problem, keys)
        assert found.makespan == expected.makespan
        np.testing.assert_array_equal(found.peak, expected.peak)

    check()


def test_all_agree_on_a_population_of_a_larger_graph():
    problem = prepare(synthetic.barabasi_albert(0, 300), unit_rate_devices(2))
    keys = jax.device_get(uniforms(jax.random.key(0), keys_shape(problem), 13))
    expected = jax.jit(jax.vmap(partial(execution.evaluate, problem)))(keys)
    slow = jax.jit(jax.vmap(partial(obvious.evaluate, problem)))(keys)
    jax.tree.map(np.testing.assert_array_equal, slow, expected)
    for queue in compiled.QUEUES:
        found = compiled.evaluate(compiled.tables(problem), keys, queue=queue)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_pymoo_spends_the_same_budget_and_minimises():
    pytest.importorskip("pymoo")
    template = Keys(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((3, 2), (3,), (2, 2))))
    seen = []

    def cost(keys: Keys) -> np.ndarray:
        assert all(leaf.dtype == np.float32 for leaf in keys)
        assert [leaf.shape[1:] for leaf in keys] == [leaf.shape for leaf in template]
        seen.append(keys.priority)
        return keys.priority.sum(1) + keys.device.sum((1, 2))

    sizes = brkga.Settings(20, elites=4, mutants=2)
    best = evolution.pymoo(cost, template, settings=sizes, bias=0.7, generations=30, seed=1)
    spent = np.concatenate(seen)
    assert len(spent) == 20 + 30 * 16 and (spent >= 0).all() and (spent <= 1).all()
    assert 0 < best < 1.5  # of 9 genes, 4.5 on average


def test_pymoo_does_not_look_for_duplicates(monkeypatch):
    duplicate = pytest.importorskip("pymoo.core.duplicate")

    def fail(*args, **kwargs):
        raise AssertionError("looked for duplicates")

    monkeypatch.setattr(duplicate.DefaultDuplicateElimination, "_do", fail)
    template = Keys(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((3, 2), (3,), (2, 2))))
    sizes = brkga.Settings(8, elites=2, mutants=1)
    evolution.pymoo(
        lambda keys: keys.priority.sum(1), template, settings=sizes, bias=0.7, generations=2, seed=0
    )


def test_genes_become_keys_in_order():
    template = Keys(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((3, 2), (3,), (2, 2))))
    keys = evolution.as_keys(np.arange(26.0).reshape(2, 13), template)
    np.testing.assert_array_equal(keys.device[1], 13 + np.arange(6).reshape(3, 2))
    np.testing.assert_array_equal(keys.priority[0], [6, 7, 8])
    np.testing.assert_array_equal(keys.transfer[1], [[22, 23], [24, 25]])


# The experiment.


def test_rates_are_of_the_least_time(monkeypatch):
    def taken(calls, repeats):
        assert repeats == 3
        return {"a": Times(np.array([9.0, 4.0]), np.array([2.0, 8.0]))}

    monkeypatch.setattr(timing, "time_interleaved", taken)
    found = timing.rates({}, {"a": 8000}, rounds=3)
    assert found == {"a": {"wall": 4000, "cpu": 2000}}
    row = {"per_second": found | {"gopt": {"wall": 2000, "cpu": 500}}}
    assert timing.rate("a")(row) == "4,000"
    assert (timing.ratio("a")(row), timing.ratio("a", "cpu")(row)) == ("0.50", "0.25")


def test_the_exponent_is_that_of_the_time():
    def record(graph, ops, per_second):
        speeds = {who: {"wall": per_second} for who in ("gopt", "compiled")}
        return {"graph": graph, "cost": "both", "ops": ops, "uses": 2 * ops, "per_second": speeds}

    records = [record("a", n, n**-1.1) for n in (1000, 10_000, 80_000)]
    records += [record("a", 200, 1.0), record("b", 1000, 1.0)]  # small graphs are left out
    long, short = list_order.exponents(records)
    assert long["gopt"] == long["compiled"] == pytest.approx(1.1)
    assert short["graph"] == "b" and np.isnan(short["gopt"])


def test_a_difference_is_reported(monkeypatch):
    def wrong(*args, **kwargs):
        return decoding.Cost(np.zeros(2, np.int32), np.ones((2, 2), np.int32))

    monkeypatch.setattr(compiled, "evaluate", wrong)
    draw = partial(synthetic.layered, 0, 20)
    with pytest.raises(RuntimeError, match="some graph, heap: the costs differ"):
        list_order.compare("some graph", draw, "makespan", population=2, rounds=1, seed=0)


def test_the_experiment_prints_and_saves(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pymoo")
    for known in (GRAPHS, FAMILIES, fusion.STEPS):
        for name in list(known):
            monkeypatch.delitem(known, name)
    monkeypatch.setitem(GRAPHS, searches.GRAPH, partial(synthetic.layered, 0, 40))
    monkeypatch.setitem(FAMILIES, "layered", synthetic.layered)
    monkeypatch.setitem(fusion.STEPS, "mlp_mixer", {"layers": 1})
    monkeypatch.setattr(dispatch, "DEVICES", (3,))
    throughput.main(
        throughput.Settings(
            population=6,
            populations=(4,),
            sizes=(40,),
            size_population=4,
            obvious=2,
            evaluations=60,
            search_populations=(20,),
            rounds=1,
            folder=tmp_path,
        )
    )
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("pymoo", "layered", "first come", "mlp_mixer"))
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"{part}.{kind}" for part in throughput.PARTS for kind in ("md", "json")),
        *("exponents.md", "settings.json", "rows.sqlite"),
    }
    found = {part: json.loads((tmp_path / f"{part}.json").read_text()) for part in throughput.PARTS}
    assert [r["population"] for r in found["populations"]] == [4]
    assert [r["ops"] for r in found["sizes"]] == [40, 40]
    (record,) = found["graphs"]
    assert record["per_second"].keys() == {"gopt", "obvious", "compiled", *compiled.QUEUES}
    assert record["queue"] in compiled.QUEUES
    best = {r["search"]: r["best"] for r in found["searches"]}
    assert best.keys() == {"gopt", searches.WITHOUT_COSTS, "pymoo"}
    assert best.pop(searches.WITHOUT_COSTS) is None and min(best.values()) > 0
    assert all(r["evaluations"] == 52 for r in found["searches"])
    served = [(r["devices"], r["served"]) for r in found["dispatch"]]
    assert served == [(3, "by priority"), (3, "first come")]
    assert [(r["clones"], r["population"]) for r in found["fusion"]] == [
        *((False, 6), (False, 64), (True, 6), (True, 64))
    ]
    for part in throughput.PARTS:
        lines = (tmp_path / f"{part}.md").read_text().splitlines()
        assert len(lines) == 4 + len(found[part])
        assert len({line.count("|") for line in lines[2:]}) == 1
