"""The experiment of GO's tables, with settings so small that its figures mean nothing."""

import dataclasses
import io
import json
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.go import __main__ as table
from experiments.go import case as cases
from experiments.go import heuristics, methods, report, tables, training
from experiments.go.rows import ROWS, Published, Row, build, profiled
from experiments.go.studies import ablations, validate
from experiments.harness import command_line, statistics
from experiments.harness.report import Row as Measured
from experiments.harness.runs import Runs, kept_runs
from experiments.harness.store import Store
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.graph import padding
from gopt.heuristics.solvers.metis import partition_by_time
from gopt.search.result import SearchResult
from gopt.systems import go, placeto
from tests.measure.row_files import conditions, stored_rows

pytestmark = pytest.mark.slow

FAMILIES, UNSEEN = (
    {family for family, _ in models} for models in (training.TRAIN, training.VALIDATION)
)
POLICY = go.Settings(
    tasks=go.TASKS,
    **dict(width=8, rounds=1, layers=0, task_layers=0, superposition=False, heads=2, segment=32),
    **dict(levels=(4,), samples=2, iterations=2, epochs=1, learning_rate=0.05),
)
PLACING = dataclasses.replace(POLICY, tasks=("placement",))
ORDERING = dataclasses.replace(POLICY, tasks=("placement", "scheduling"))
TRAINING = training.Training(
    **dict(steps=4, devices=(2,), graphs=2, checkpoint_every=2),
    **dict(iterations=2, samples=2, epochs=1, life=4),
)
# All graphs have one shape, and two devices: few programs are compiled.
LSTM = {"batch": 2, "hidden": 16, "vocabulary": 60, "layers": 1}
ROW = Row("rnnlm", {"length": 2, **LSTM}, 2, Published(1.0, 2.0, 3.0))
MODELS = tuple(("rnnlm", {"length": length, **LSTM}) for length in (1, 2))


def padded(row):
    """The training step of a row, of the shape of all others."""
    step = build(row)
    return step._replace(graph=padding.pad(step.graph))


@pytest.fixture(scope="module", autouse=True)
def small():
    """One small row; devices, cache and compiled programs are as the tests have set them up."""
    learn = jax.jit(training._learn, static_argnames=("policy", "simulate"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_learn", learn)  # it is traced once for each policy
        patch.setattr(jax, "clear_caches", lambda: None)
        patch.setattr(training, "TRAIN", MODELS)
        patch.setattr(placeto, "Settings", partial(placeto.Settings, groups=4, rounds=1))
        patch.setitem(ROWS, "small", ROW)
        patch.setattr(table, "build", padded)
        patch.setattr(command_line, "start", lambda: None)
        yield


@pytest.fixture(scope="module")
def first(small, tmp_path_factory):
    """The folder of a run that trains a policy and evaluates it."""
    folder = tmp_path_factory.mktemp("runs")
    settings = table.Settings(
        rows=("small",),
        searches=("GO untrained", "GO"),  # one program
        evaluations=31,
        seeds=2,
        train=True,
        folder=folder,
        policy=PLACING,
        training=TRAINING,
    )
    table.main(settings)
    return folder / "placement"


def tables_of(folder):
    """The tables of a run, in Markdown."""
    return "".join((folder / name).read_text() for name in ("rows.md", "summary.md"))


@jax.jit
def cost_of(problem, decision, order):
    decisions = jax.tree.map(lambda x: jnp.asarray(x)[None], decision)
    return go.simulator_of(problem, cases.OBJECTIVE, order).cost(decisions)[0]


@cache
def known_of(name):
    """The row as a table has it."""
    step = padded(ROW)
    place = partial(heuristics.placed, step=step, row=ROW, seeds=1)
    return tables.TABLES[name][0](step, ROW.devices, place)


def check(folder, known):
    """What is saved of a row was found from its start on, and costs what it says."""
    (row,) = json.loads((folder / "runs.json").read_text())
    searches = list(row["found"])[len(known.given) + 1 :]
    for method, found in ((name, row["found"][name]) for name in searches):
        history = np.array(found["history"])
        assert (np.diff(history, axis=1) <= 0).all()
        np.testing.assert_allclose(history[:, 0], known.given[row["begun"]].makespan, rtol=1e-6)
        np.testing.assert_allclose(history[:, -1], found["cost"])
        path = folder / "small" / f"{method}.sqlite"
        assert conditions(path)["evaluations"] == 31
        with np.load(io.BytesIO(stored_rows(path)[method])) as saved:
            decision = go.OpDecisions(*(saved[f"{method}|best {task}"] for task in go.TASKS))
        ticks = float(cost_of(known.problem, decision, known.given[row["begun"]].order))
        assert tables.seconds_of(known.problem, ticks) == pytest.approx(
            min(found["cost"]), rel=1e-6
        )


def test_a_run_trains_evaluates_and_saves(first):
    made = tables_of(first)
    assert all(text in made for text in ("GO untrained", "over expert", "published", "busy"))
    saved = {path.name for path in first.iterdir()}
    assert saved == {
        *("settings.json", "rows.md", "summary.md", "runs.json", "small", "policy"),
    }
    check(first, known_of("placement"))


def test_a_run_may_be_about_fusion(tmp_path):
    weights = tmp_path / "policy.npz"
    go.save(weights, parameters(POLICY), POLICY)
    settings = table.Settings(
        **dict(table="joint", rows=("small",), searches=("local search",), evaluations=31),
        **dict(seeds=2, weights=weights, folder=tmp_path, training=TRAINING),
    )
    table.main(settings)
    made = tables_of(tmp_path / "joint")
    assert "over METIS, fused" in made and "busy" not in made
    assert "published" not in made  # nothing is, for this table
    check(tmp_path / "joint", known_of("joint"))


@pytest.mark.parametrize("name", [*tables.TABLES])
def test_what_is_known_costs_what_it_says(name):
    found = known_of(name)
    assert found.default in found.given and set(found.starts) <= set(found.given)
    assert not set(found.beyond) & {found.default, *found.starts}
    assert ("HEFT, own order" in found.beyond) == (name == "placement")
    costs = {}
    for method in found.starts:
        given = found.given[method]
        ticks = float(cost_of(found.problem, given.decision, given.order))
        costs[method] = tables.seconds_of(found.problem, ticks)
        assert given.makespan == pytest.approx(costs[method], rel=1e-6)
    assert min(costs.values()) > 0
    if name == "scheduling":
        again = tables.score(found.problem, found.given["FIFO"].decision, None)
        assert again.makespan == found.given["FIFO"].makespan
    if name == "joint":
        assert costs["best placement"] <= costs["METIS"]
        assert costs["best placement, fused"] <= costs["METIS, fused"]
        # Compilers fuse within a device.
        placed, _, fused = found.given["METIS, fused"].decision
        fusion = found.problem.fusion[0]
        assert fused.any() and len(set(placed.tolist())) == 2
        for op in np.flatnonzero(fused):
            readers = fusion.consumer[fusion.first_use[op] : fusion.first_use[op + 1]]
            assert (placed[readers] == placed[op]).all()


def test_training_that_is_interrupted_goes_on_as_if_it_were_not(first, tmp_path, monkeypatch):
    default_rng, steps = np.random.default_rng, []

    def stopped(seed=None):
        if isinstance(seed, tuple):  # of a step
            steps.append(seed)
            if len(steps) == 3:  # after the checkpoint of two steps
                raise KeyboardInterrupt
        return default_rng(seed)

    every = training.pools(training.TRAIN, TRAINING.devices, PLACING)
    monkeypatch.setattr(training, "pools", lambda *_: every)
    monkeypatch.setattr(np.random, "default_rng", stopped)
    with pytest.raises(KeyboardInterrupt):
        training.train(TRAINING, PLACING, 0, tmp_path)
    params, _ = training.train(TRAINING, PLACING, 0, tmp_path)
    assert len(steps) == 3 + 2  # it went on after the second step
    whole, _ = go.load(first / "policy" / "policy.npz")
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), params, whole)
    score = jax.tree.leaves(params["params"]["head_placement"]["score"])
    assert any(np.abs(leaf).max() > 1e-3 for leaf in score)
    watched = [json.loads((at / "history.json").read_text()) for at in (tmp_path, first / "policy")]
    assert len(watched[0]) == 4
    for one, other in zip(*watched, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_searches_are_trained_from_several_starts():
    (pool,) = training.pools(MODELS, (2,), POLICY)
    places = np.asarray(pool.start.decision.placement)
    fused = np.asarray(pool.start.decision.fusion)
    assert len(places) == 2 * len(MODELS) and (pool.start.cost < MAX_TICKS).all()
    for k in range(0, len(places), 2):
        problem = jax.tree.map(lambda x, k=k: x[k], pool.problem.schedule)
        alone, cut = places[k : k + 2]
        assert not alone.any() and cut.any()
        assert not fused[k].any() and fused[k + 1].any()
        for place in (alone, cut):
            np.testing.assert_array_equal(dispatch.legalize_placement(problem, place), place)
    # Who does not place has one placement, fused or not.
    rest = dataclasses.replace(POLICY, tasks=("scheduling", "fusion"))
    (pool,) = training.pools(MODELS, (2,), rest)
    assert len(pool.start.cost) == 2 * len(MODELS)
    assert (np.asarray(pool.start.decision.placement)[::2] == places[1::2]).all()
    assert np.asarray(pool.start.decision.fusion).any(1).tolist() == [False, True] * len(MODELS)


def test_no_family_of_the_table_is_trained_on():
    table = {row.family for row in ROWS.values()}
    assert len(FAMILIES) == 17 and not FAMILIES & table
    assert len(UNSEEN) == 4 and not UNSEEN & (FAMILIES | table)


@cache
def case(policy):
    (name,) = (name for name, (_, tasks) in tables.TABLES.items() if tasks == policy.tasks)
    known = known_of(name)
    given = known.given[known.starts[0]]
    return cases.case(padded(ROW).graph, known.problem, given.decision, given.order, policy)


@cache
def parameters(policy):
    init = partial(go.init, jax.random.key(0), settings=policy)
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: rng.normal(scale=0.3, size=x.shape).astype(np.float32),
        jax.eval_shape(init, case(policy).inputs),
    )


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, PLACING) for name in ("random search", "GO", "GO fine-tuned")),
        *((name, PLACING) for name in ("HDP", "Placeto", "REGAL")),
        ("annealing, in turn", ORDERING),
        ("BRKGA", POLICY),
    ],
)
def test_searches_keep_within_the_budget(name, policy, monkeypatch):
    spent = []
    simulator_of = go.simulator_of

    def counted(*args):
        simulator = simulator_of(*args)

        def cost(decisions):
            jax.debug.callback(lambda: spent.append(len(decisions.placement)))
            return simulator.cost(decisions)

        def timing(decision):
            jax.debug.callback(lambda: spent.append(1))
            return simulator.timing(decision)

        return go.Simulator(cost, timing)

    def tune(key, state, *args, steps, settings):
        """Search as `go.tune`, without its training, whose program takes long to compile."""
        iterations = steps * settings.iterations
        best, _, history = go.rollout(
            key, state.params, *args, iterations=iterations, settings=settings
        )
        return state, best, history

    monkeypatch.setattr(go, "simulator_of", counted)
    monkeypatch.setattr(go, "tune", tune)
    one = case(policy)
    params = parameters(policy)
    search = methods.searches(29, policy)[name]
    found = jax.jit(search)(jax.random.key(1), one, params)
    jax.block_until_ready(found)
    jax.effects_barrier()
    step = policy.evaluations_per_iteration * (policy.iterations if "-" in name else 1)
    step = len(one.reads["Placeto"].about) if name == "Placeto" else step
    known = 1 if "turn" in name else 0  # the start of a task is costed again, and counts once
    assert 29 - step < sum(spent) - known <= 29
    again = tables.simulated(one.problem, found.best, one.order)
    assert again == found.cost == found.history[-1]
    assert found.evaluations[-1] == sum(spent) - known
    assert found.evaluations[0] == (4 if name == "HDP" else 1)
    assert found.evaluations.shape == found.history.shape


def test_a_move_gives_one_group_another_value():
    one = case(POLICY)
    keys = jax.random.split(jax.random.key(0), 300)
    move = jax.jit(jax.vmap(lambda key: cases.move(key, one, one.start, POLICY.tasks)))
    moved = move(keys)
    for k, (task, values) in enumerate(zip(go.TASKS, (2, len(go.SHIFTS), go.FUSIONS), strict=True)):
        groups = {
            frozenset(np.flatnonzero(np.asarray(level) == group).tolist())
            for level, count in zip(one.group[k], one.count[k], strict=True)
            for group in range(int(count))
        }
        after, before = np.asarray(getattr(moved, task)), np.asarray(getattr(one.start, task))
        changed = [
            (frozenset(np.flatnonzero(np.asarray(members)).tolist()))
            for members in (after != before)
            if members.any()
        ]
        assert 60 < len(changed) < 140  # the others are moves of other tasks
        # Some of a group may have that value before.
        assert all(any(few <= group for group in groups) for few in changed)
        assert len(set(changed)) > 8
        assert set(after.ravel().tolist()) == set(range(values))
    one = case(PLACING)

    @jax.jit
    @jax.vmap
    def placed(key):
        found = cases.move(key, one, one.start, PLACING.tasks).placement
        return found, dispatch.legalize_placement(one.schedule, found)

    np.testing.assert_array_equal(*placed(keys))  # inputs go with their readers


def test_a_placement_that_fits_is_better_than_a_faster_one():
    problem = case(PLACING).problem
    rows = problem.shape.ops
    together, apart = np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32) % 2
    best = heuristics.best(problem, [lambda: apart, lambda: together])
    assert (best.decision.placement == 0).all() and np.isfinite(best.makespan)
    tight = problem._replace(capacity=jnp.array([0, 2**30], jnp.int32))
    assert np.isinf(heuristics.best(tight, [lambda: together]).makespan)
    slow = heuristics.best(tight, [lambda: apart, lambda: together + 1])
    assert np.isfinite(slow.makespan) and (slow.decision.placement == 1).all()


def measured(name, expert, start, found):
    """A row with these steps, s."""
    steps = {"expert": expert, "METIS": start, report.START: start}
    placed = {method: tables.Given(None, None, step, 0.5).runs for method, step in steps.items()}
    history = np.array([[step, step] for step in found])
    found = Runs(np.array(found), np.array([1, 21]), history, seconds=2.0)
    about = {"published": None, "ops": 10, "default": "expert", "bound": 0.1, "work": 0.08}
    return Measured(name, "a", placed | {"GO": found}, {}, about)


def searched(row, **found):
    """The row with other searches than GO."""
    placed = {method: runs for method, runs in row.found.items() if method != "GO"}
    return row._replace(found=placed | found)


def gains(rows, method, other):
    """Time saved by each run."""
    return statistics.time_saved(report.shares(rows, method, other))


def test_gains_are_geometric_means_of_each_run():
    rows = [measured("a", 4.0, 2.0, [1.0, 2.0]), measured("b", 1.0, 2.0, [1.0, 0.5])]
    np.testing.assert_allclose(gains(rows, "GO", "expert"), [0.5, 0.5])
    over_start = 1 - np.sqrt([0.5 * 0.5, 1.0 * 0.25])
    np.testing.assert_allclose(gains(rows, "GO", report.START), over_start)
    np.testing.assert_allclose(gains(rows, "METIS", "expert"), [0], atol=1e-12)
    assert [row.known for row in rows] == [1.0, 0.5]


def test_in_equal_seconds_the_slower_search_makes_fewer_evaluations(tmp_path):
    def row(step):
        row = measured("small", 4.0, 2.0, [step])
        evaluations = np.array([1, 10, 20, 40])
        history = np.array([[8.0, 2.0, 1.0, 0.5], [8.0, 4.0, 1.0, 1.0]])
        slow = Runs(history[:, -1], evaluations, history, seconds=8.0)
        return searched(row, GO=row.found["GO"], slow=slow)

    report.write("title", [row(1.0), row(1.0)], tmp_path)
    head, _, *lines = (tmp_path / "summary.md").read_text().splitlines()[2:]
    head, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in (head, *lines))
    figures = {line[0]: line[head.index("in GO's s, %")] for line in lines}
    assert figures["slow"] == "25.0 ± 317.7"  # 2 and 4 s after a quarter of its 8 s
    assert figures["GO"] == "75.0" and not figures["METIS"]


def test_a_policy_is_compared_with_those_trained_on_a_row(tmp_path):
    def row(*steps):
        found = {
            method: Runs(np.array(x), np.array([1]), np.array(x)[:, None], seconds=1.0)
            for method, x in zip(("GO", "GO-one", "GO fine-tuned"), steps, strict=True)
        }
        return searched(measured("a", 4.0, 2.0, [1.0]), **found)

    rows = [
        row([1.0, 1.0], [1.5, 2.5], [2.0, 2.0]),
        row([4.0, 4.0], [1.0, 1.0], [1.0, 1.0]),
        row([3.0, 3.0], [1.0, 2.0], [1.5, 1.5]),
    ]
    report.write("title", rows, tmp_path)
    head, _, *lines = (tmp_path / "summary.md").read_text().splitlines()[2:]
    place = head.split(" | ").index("over GO-one, %")
    figures = {line.split(" | ")[0]: line.split(" | ")[place] for line in lines}
    assert figures["| GO"] == "-58.7 ± 0.0" and figures["| GO fine-tuned"] == "0.0 ± 0.0"


PROFILE = {  # two branches of 23 layers between a first and a last one: as large as the row
    "name": "fork",
    "nodes": [
        {"forward_ms": t, "backward_ms": t, "activation_bytes": 1000, "parameter_bytes": size}
        for t, size in ((1, 0), *23 * ((4, 40), (4, 80)), (1, 0))
    ],
    "edges": [[max(0, k - 2), k] for k in range(1, 47)] + [[45, 47], [46, 47]],
}


def test_profiled_networks_may_be_the_rows(tmp_path):
    path, weights = tmp_path / "profiled.json", tmp_path / "policy.npz"
    path.write_text(json.dumps([PROFILE]))
    go.save(weights, parameters(PLACING), PLACING)
    rows = profiled(path)
    names = ["fork, 2 devices", "fork, 4 devices"]
    assert list(rows) == names and [row.devices for row in rows.values()] == [2, 4]
    settings = table.Settings(
        **dict(profiled=path, weights=weights, searches=("GO",), evaluations=31, seeds=2),
        rows=tuple(names[:1]),
        **dict(folder=tmp_path / "runs", training=TRAINING),
    )
    table.main(settings)
    folder = tmp_path / "runs" / "placement, profiled"
    assert "published" not in tables_of(folder)
    (row,) = json.loads((folder / "runs.json").read_text())
    assert row["name"] == names[0] and row["ops"] == 142 and row["family"] == "fork"
    assert json.loads((folder / "settings.json").read_text())["rows"] == names[:1]
    assert row["found"]["one device"]["cost"] == pytest.approx([372e-3], rel=1e-6)
    # Both branches at once, and what is sent: about 10 µs each time.
    for step in (*row["found"]["HEFT"]["cost"], *row["found"]["GO"]["cost"]):
        assert 188e-3 < step < 188.2e-3
    with pytest.raises(ValueError, match="of measured times: expected no table with fusion"):
        table.main(dataclasses.replace(settings, table="joint"))
    with pytest.raises(ValueError, match="rows has 'RNNLM, 2 layers'"):
        table.main(dataclasses.replace(settings, rows=("RNNLM, 2 layers",)))


def test_who_is_sooner_is_told_by_what_the_other_ends_with(tmp_path):
    def row(histories):
        evaluations = np.array([1, 10, 100])
        found = {
            name: Runs(history[:, -1], evaluations, history, seconds=1.0)
            for name, history in histories.items()
        }
        return searched(measured("small", 4.0, 2.0, [1.0]), **found)

    slow = np.array([[9.0, 9.0, 4.0], [9.0, 6.0, 6.0]])  # 5 on average, after 100 and 10
    fast = np.array([[9.0, 2.0, 2.0], [9.0, 9.0, 1.0]])  # after 10 and 100
    late = np.array([[5.0, 5.0, 5.0], [9.0, 9.0, 6.0]])  # one run does not get there
    rows = [row({"HDP": slow, "GO": fast}), row({"HDP": slow, "GO": late})]
    ratio, count = report.sooner(rows, "GO", "HDP")
    assert count == 1 and ratio == pytest.approx(np.sqrt(100 * 10 / (10 * 100)))
    assert report.sooner(rows[1:], "GO", "HDP")[1] == 0
    begun = row({"HDP": slow, "GO": np.minimum(fast, 5)})  # where nothing is to be done
    assert report.sooner([begun], "GO", "HDP")[1] == 0
    report.write("title", rows, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert "sooner than HDP |" in text and "(1 of 2) |" in text and "| never |" in text
    report.write("title", [row({"HDP": slow, "GO": fast, "HDP, published": late})], tmp_path)
    assert "sooner than HDP, published |" in (tmp_path / "summary.md").read_text()


def test_what_does_not_fit_is_no_figure(tmp_path):
    rows = [measured("small", 4.0, 2.0, [1.0, np.nan]), measured("small", 1.0, np.inf, [1.0, 0.5])]
    rows = [row._replace(about={**row.about, "published": ROW.published}) for row in rows]
    np.testing.assert_allclose(gains(rows, "GO", "expert"), [0, 0.5])
    np.testing.assert_allclose(gains(rows, "METIS", "expert"), [0.5])
    assert [row.known for row in rows] == [1.0, 0.5]
    report.write("title", rows, tmp_path)
    text = (tmp_path / "rows.md").read_text()
    assert text.count("does not fit") == 3  # METIS, the same as the start, and a run of GO
    lines = (tmp_path / "summary.md").read_text()
    assert "| METIS | 50.0 | 0.0 | 50 | 4 | 0.5 |" in lines
    assert "| expert | 0.0 | -100.0 | 0 | 5 | 0.5 |" in lines
    assert "| published GO-one | 50.0 |" in lines


def test_headroom_is_what_is_captured_of_what_experts_leave():
    expert, known = np.array([4.0, 2.0, 1.0]), np.array([1.0, 1.0, 1.0])
    assert report.headroom(expert, known, known) == pytest.approx(1)
    assert report.headroom(expert, expert, known) == 0
    assert report.headroom(expert, np.array([2.0, 2.0, 1.0]), known) == pytest.approx(1 / 3)
    assert report.headroom(expert, np.array([2.0, np.nan, 1.0]), known) == pytest.approx(1 / 2)
    assert np.isnan(report.headroom(known, known, known))


def test_a_search_that_reports_a_wrong_cost_is_refused():
    def wrong(key, case, params):
        return SearchResult(case.start, jnp.float32(1), jnp.ones(2), jnp.arange(2))

    with pytest.raises(RuntimeError, match=r"a search reports 1\.0, its decision costs"):
        table.run(wrong, jax.random.split(jax.random.key(0), 2), case(PLACING), jnp.zeros(2))


def test_what_a_search_reached_is_kept(tmp_path):
    decision = go.OpDecisions(*np.arange(9, dtype=np.int32).reshape(3, 3))
    history = np.array([[3.0, np.nan], [3.0, 2.0]])
    reached = Runs(history[:, 1], np.array([1, 21], np.int32), history, decision, 0.5)
    path, calls = tmp_path / "row" / "GO.sqlite", []

    def kept(about):
        return kept_runs(Store(path, about), "GO", lambda: {"GO": search()}, go.OpDecisions)["GO"]

    def search():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return reached

    with pytest.raises(KeyboardInterrupt):
        kept({"seeds": 2})
    for _ in range(2):
        found = kept({"seeds": 2, "sizes": (1,)})
        jax.tree.map(np.testing.assert_array_equal, found, reached)
        assert type(found.seconds) is float
    assert len(calls) == 2
    with pytest.raises(ValueError, match=r"GO\.sqlite has rows with seeds = 2, expected 3: use"):
        kept({"seeds": 3, "sizes": (1,)})
    with pytest.raises(ValueError, match="alone = None, expected 1: use another file"):
        kept({"seeds": 2, "sizes": (1,), "alone": 1})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"GO\.sqlite is damaged"):
        kept({"seeds": 2, "sizes": (1,)})


def test_what_heuristics_place_is_kept(tmp_path, monkeypatch):
    problem, folder, calls = case(PLACING).problem, tmp_path / "row", []
    device = np.arange(problem.shape.ops, dtype=np.int32) % 3
    places = {
        "expert": tables.Given(tables.decided(device), None, 0.5, 1.5),
        "METIS": tables.Given(tables.decided(device[::-1]), None, np.inf, 0.0),
    }
    monkeypatch.setattr(heuristics, "placed", lambda *_: calls.append(1) or places)
    for _ in range(2):
        found = heuristics.kept(folder, problem, None, ROW, 1)
        jax.tree.map(np.testing.assert_array_equal, found, places)
        assert list(map(type, found["METIS"][2:])) == [float, float]
    assert list(found) == ["expert", "METIS"] and len(calls) == 1
    other = problem._replace(capacity=problem.capacity - 1)
    with pytest.raises(
        ValueError, match=r"heuristics\.sqlite has rows with problem = '\w+', expected"
    ):
        heuristics.kept(folder, other, None, ROW, 1)


def test_settings_that_mean_nothing_raise(tmp_path):
    with pytest.raises(ValueError, match="rows has 'ResNet': expected some of RNNLM, 2 layers"):
        table.main(table.Settings(rows=("ResNet",), folder=tmp_path, training=TRAINING))
    with pytest.raises(ValueError, match="table has 'tiling': expected some of placement, sched"):
        table.main(table.Settings(table="tiling", folder=tmp_path, training=TRAINING))
    path = tmp_path / "policy.npz"
    params = parameters(PLACING)
    go.save(path, params, PLACING)
    small = table.Settings(weights=path, folder=tmp_path, training=TRAINING)
    with pytest.raises(ValueError, match=r"the policy decides .'placement',.: expected"):
        table.main(dataclasses.replace(small, table="joint"))
    with pytest.raises(ValueError, match="searches has 'GO, in turn': expected some of random"):
        table.main(dataclasses.replace(small, searches=("GO, in turn",)))
    with pytest.raises(ValueError, match="evaluations is 144: expected 157 at least"):
        methods.searches(144, go.Settings())
    for wrong, message in (
        (dict(devices=()), "devices is ..: expected numbers"),
        (dict(iterations=0), "iterations is 0: expected 1 at least"),
        (dict(samples=1), "samples is 1: expected 2 at least"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(TRAINING, **wrong)


def test_policies_are_compared_where_they_were_not_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "VALIDATION", MODELS)
    (pool,) = training.pools(MODELS, (2,), PLACING)
    inputs = jax.tree.map(lambda x: x[0], pool.inputs)
    untrained = go.init(jax.random.key(1), inputs, settings=PLACING)
    policies = {"untrained": untrained}  # all of them say the same
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        drawn = jax.tree.map(lambda x, rng=rng: rng.normal(size=x.shape), untrained)
        params = jax.tree.map(np.float32, drawn)
        go.save(tmp_path / f"{seed}.npz", params, PLACING)
        policies[f"{tmp_path / str(seed)}.npz, 0.2 uniform"] = params
    paths = tmp_path / "0.npz", tmp_path / "1.npz"
    small = dict(devices=(2,), iterations=(1, 4), seeds=3)
    settings = validate.Settings(weights=paths, **small, folder=tmp_path / "found")
    validate.main(settings)
    made = (tmp_path / "found" / "table.md").read_text()
    assert "one device" in made and "a cut" in made
    saved = json.loads((tmp_path / "found" / "gains.json").read_text())
    families = [family for family, _ in MODELS]
    assert saved["evaluations"] == [1 + step * PLACING.evaluations_per_iteration for step in (1, 4)]
    assert saved["searches"] == [[2, f, start] for f in families for start in training.STARTS]
    assert list(saved["log ratio"]) == list(policies)
    found = {name: np.array(x) for name, x in saved["log ratio"].items()}
    # Each search is that of its policy, from the start that it is said to be.
    key = jax.random.split(jax.random.split(jax.random.key(0))[1], 12)[4 + 3]  # the second search
    problem, start = (jax.tree.map(lambda x: x[3], each) for each in (pool.problem, pool.start))
    placed = partition_by_time(problem, seed=1)
    np.testing.assert_array_equal(
        start.decision.placement, dispatch.legalize_placement(problem, placed)
    )
    simulator = go.simulator_of(problem, cases.OBJECTIVE)
    inputs = jax.tree.map(lambda x: x[3], pool.inputs)
    run = jax.jit(partial(go.rollout, simulator=simulator, iterations=4, settings=PLACING))
    for name, params in policies.items():
        assert found[name].shape == (3, 4, 2)  # seeds, graphs from two starts, iterations
        history = run(key, params, inputs, start)[2]
        expected = np.log(np.asarray(history)[[0, 3]] / start.cost)
        np.testing.assert_allclose(found[name][1, 3], expected, atol=1e-6)
    one, two, three = found.values()
    assert not np.allclose(one, two) and not np.allclose(two, three)
    for k, (name, x) in enumerate(found.items()):
        row = (tmp_path / "found" / "table.md").read_text().splitlines()[4 + k].split("|")
        mean, error = statistics.mean_interval(100 * (1 - np.exp(x[:, 1::2, 1].mean(1))))
        assert row[1].strip() == name and row[5].strip() == f"{mean:.1f} ± {error:.1f}"


ABLATIONS = ablations.Settings(
    **dict(trainings=1, devices=(2,), iterations=(1, 4), seeds=3),
    **dict(policy=PLACING, training=dataclasses.replace(TRAINING, steps=3)),
)


def test_what_a_part_is_worth_is_told_by_policies_trained_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "VALIDATION", MODELS)

    part = "no attention"  # the small policy has none
    with redirect_stdout(StringIO()) as printed:
        ablations.main(dataclasses.replace(ABLATIONS, parts=(part,), folder=tmp_path))
    assert "mean and range of 1 trainings" in printed.getvalue()
    saved = json.loads((tmp_path / "gains.json").read_text())
    found = {name: np.array(x) for name, x in saved["log ratio"].items()}
    assert list(found) == [part, "untrained"]
    assert {x.shape for x in found.values()} == {(1, 3, 4, 2)}
    assert all((x <= 0).all() and x.min() < 0 for x in found.values())
    trained, untrained = found.values()
    assert not np.allclose(trained, untrained)
    assert (tmp_path / part / "0" / "policy.npz").exists()
    line = (tmp_path / "table.md").read_text().splitlines()[4].split("|")
    mean = 100 * (1 - np.exp(trained[0, :, 1::2, 0].mean()))
    assert line[1].strip() == part
    assert line[4].startswith(f" {mean:.1f} ({mean:.1f} to")


def test_a_policy_as_it_is_searches_in_three_ways(tmp_path, monkeypatch):
    searched, simulated = [], []

    def gains(key, params, pools, policy, *, iterations, seeds, simulate):
        searched.append((params, policy, iterations))
        simulated.append(simulate)
        return np.full((seeds, len(pools[0].start.cost), len(iterations)), -len(searched))

    monkeypatch.setattr(training, "VALIDATION", MODELS)
    monkeypatch.setattr(ablations.validate, "gains", gains)

    def train(how, policy, seed, folder, every, simulate):
        simulated.append(simulate)
        return "trained", policy

    monkeypatch.setattr(training, "train", train)
    as_it_is = dataclasses.replace(ABLATIONS, parts=(ablations.AS_IT_IS,), folder=tmp_path)
    with redirect_stdout(StringIO()):
        ablations.main(dataclasses.replace(as_it_is, parts=("no schedule",)))
        assert simulated == [ablations.blind, ablations.blind, go.simulator_of]
        del searched[:]
        ablations.main(as_it_is)
    assert [params == "trained" for params, _, _ in searched] == [True] * 4 + [False]
    only_one = dataclasses.replace(PLACING, changes=1e-6 * PLACING.changes)
    eight = dataclasses.replace(PLACING, samples=8)
    assert [rest for _, *rest in searched] == [
        *([PLACING, (1, 4)], [only_one, (1, 4)], [PLACING, (1,)], [eight, (1,)]),
        [PLACING, (1, 4)],
    ]
    found = json.loads((tmp_path / "gains.json").read_text())["log ratio"]
    ways = ablations.AS_IT_IS, "one group at a time", "one shot"
    assert list(found) == [*ways, "untrained"]
    assert {np.shape(x) for x in found.values()} == {(1, 3, 4, 2)}
    assert np.unique(found["one shot"], axis=2).ravel().tolist() == 3 * [-3, -4]


def test_who_is_blind_knows_what_decisions_cost_but_not_when_ops_run():
    one = case(PLACING)

    @partial(jax.jit, static_argnums=0)
    def found(simulate, decision):
        simulator = simulate(one.problem, cases.OBJECTIVE)
        cost = simulator.cost(jax.tree.map(lambda x: x[None], decision))
        return cost, simulator.timing(decision)

    told, timing = found(ablations.blind, one.start)
    known, expected = found(go.simulator_of, one.start)
    assert told == known > 0
    shapes = jax.tree.map(jnp.shape, (timing, expected))
    assert shapes[0] == shapes[1]
    np.testing.assert_array_equal(timing.device, expected.device)
    assert (timing.slack > 0).all() and (expected.slack == 0).any()
    assert (timing.end == 0).all() and (expected.end > 0).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(trainings=0), "trainings is 0: expected 1 at least"),
        (dict(iterations=()), r"iterations is \(\): expected numbers, 1 at least"),
        (dict(devices=(0,)), r"devices is \(0,\): expected numbers, 1 at least"),
    ],
)
def test_ablations_that_mean_nothing_raise(wrong, message):
    with pytest.raises(ValueError, match=message):
        ablations.Settings(**wrong, training=TRAINING)
    with pytest.raises(ValueError, match="parts has 'no head': expected some of as it is"):
        ablations.main(ablations.Settings(parts=("no head",), training=TRAINING))


def test_policies_that_search_otherwise_are_not_compared(monkeypatch):
    each = {
        "a": POLICY,
        "b": dataclasses.replace(POLICY, samples=5),
        "c": dataclasses.replace(POLICY, tasks=("scheduling",)),
    }
    monkeypatch.setattr(go, "load", lambda path: (None, each[str(path)]))
    for names in ("ab", "cc"):
        with pytest.raises(ValueError, match="have tasks, levels, samples, changes"):
            validate.compared(validate.Settings(weights=tuple(map(Path, names))))
    found = validate.compared(validate.Settings(weights=(Path("a"),), explore=(0.1, 0.9)))
    assert [(name, policy.explore) for name, _, policy in found] == [("a", 0.1), ("a", 0.9)]


def test_searches_that_do_not_fit_are_left_out():
    ratio = np.log([[0.5, np.nan], [0.5, np.nan], [0.5, 0.1]])
    assert validate.shorter(ratio) == "50.0 ± 0.0"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(iterations=()), r"iterations is \(\): expected numbers, 1 at least"),
        (dict(devices=(2, 0)), r"devices is \(2, 0\): expected numbers, 1 at least"),
        (dict(seeds=0), "seeds is 0: expected 1 at least"),
    ],
)
def test_comparisons_that_mean_nothing_raise(wrong, message):
    with pytest.raises(ValueError, match=message):
        validate.Settings(**wrong)
