"""The experiment on instances of known value, scored by hand and by an independent scorer."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.harness import command_line
from experiments.yardsticks import METHODS, Settings, main, read_cases
from gopt.graph import padding
from gopt.heuristics import HEURISTICS, schedules_tried
from gopt.heuristics.schedule.orders import memory_orders
from gopt.heuristics.schedule.placement import list_scheduling, order_splits
from gopt.sources.instances import makespan_instance
from tests.reference.instances import value
from tests.test_known_optima import independent_scorer

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
FOLDER = Path(__file__).parents[3] / "shared" / "yardsticks"

# Task 1 is read by both others: 2 + 2 + 3 on two processors, 2 + 3 + 3 on one.
FORK = {
    "name": "fork",
    "processors": 2,
    "tasks": [3, 2, 3],
    "edges": [[1, 0, 2], [1, 2, 2]],
    "best": 7,
}
# Three tasks of 2 s without edges that cost anything, and one after two of them.
JOIN = {
    "name": "join",
    "tasks": [2, 2, 1, 2],
    "edges": [[0, 2], [1, 2]],
    "results": {"1": {"best": 7}, "2": {"best": 4}},
}
# Two branches of 4 and 1 bytes: one after the other 6 bytes, side by side 9.
BRANCHES = {
    "name": "branches",
    "sizes": [4, 4, 1, 1, 1],
    "edges": [[0, 2], [1, 3], [2, 4], [3, 4]],
    "best": 6,
}


def tangle(count):
    """Returns an instance of this many tasks with so many edges that each search ends elsewhere."""
    rng = np.random.default_rng(0)
    edges = [[i, j, int(rng.integers(1, 9))] for j in range(count) for i in range(j) if (i + j) % 3]
    return {
        "name": f"tangle of {count}",
        "processors": 2,
        "tasks": [*range(1, count + 1)],
        "edges": edges,
    }


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """Devices and cache are as the tests have set them up; no line of a table is broken."""
    monkeypatch.setattr(command_line, "start", lambda: None)
    monkeypatch.setenv("COLUMNS", "160")


def solve(folder, instances, method, **settings):
    """Returns what `main` writes for these instances."""
    given, found = folder / "instances.json", folder / "out" / "solutions.json"
    given.write_text(json.dumps(instances))
    main(Settings(given, solutions=found, method=method, **settings))
    assert [path.name for path in found.parent.iterdir()] == ["solutions.json"]
    return json.loads(found.read_text())


def printed(capsys):
    """Returns the row of the table that was printed, by column."""
    lines = capsys.readouterr().out.splitlines()
    heads, (row,) = (
        [
            [cell.strip() for cell in line.strip(edge).split(edge)]
            for line in lines
            if line[:1] == edge
        ]
        for edge in "┃│"
    )
    names = [" ".join(filter(None, parts)) for parts in zip(*heads, strict=True)]
    return dict(zip(names, row, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_solves_every_format(method, tmp_path, capsys):
    fork, *joins = solve(tmp_path, [FORK, JOIN], method, evaluations=200)
    (branches,) = solve(tmp_path, [BRANCHES], method, evaluations=200)

    assert (fork["name"], fork["processors"]) == ("fork", 2)
    device, start = fork["device"], fork["start"]
    assert start[1] == 0
    assert all(start[i] == 2 + 2 * (device[i] != device[1]) or start[i] == 5 for i in (0, 2))
    end = max(start[0], start[2]) + 3
    assert end == 7 if device[0] != device[2] else end == 8

    assert [(row["name"], row["processors"]) for row in joins] == [("join", p) for p in (1, 2)]
    for row in joins:
        assert set(row["device"]) <= set(range(row["processors"]))
        assert row["start"][2] >= max(row["start"][:2]) + 2
        for p in range(row["processors"]):
            on = sorted(i for i in range(4) if row["device"][i] == p)
            on.sort(key=lambda i: row["start"][i])
            for a, b in itertools.pairwise(on):
                assert row["start"][b] >= row["start"][a] + JOIN["tasks"][a]

    assert set(branches) == {"name", "order"} and sorted(branches["order"]) == list(range(5))
    position = np.argsort(branches["order"])
    assert all(position[u] < position[v] for u, v in BRANCHES["edges"])

    memory_only = ("depth_first", "breadth_first", "greedy_release", "xla", "spectral_cut")
    if method not in memory_only:
        ends = [max(s + t for s, t in zip(r["start"], JOIN["tasks"], strict=True)) for r in joins]
        assert end == 7 and ends == [7, 4]
    if method in ("depth_first", "brkga", "best"):
        assert max(position[:2]) > min(position[2:4])  # not both branches side by side
    assert method in capsys.readouterr().out


# A forward chain of 4-byte tasks, read again in reverse. One more run fits it into 14 bytes.
LADDER = {
    "name": "ladder",
    "sizes": [4, 4, 4, 4, 1, 1, 1, 1],
    "times": [1] * 8,
    "edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7], [2, 5], [1, 6], [0, 7]],
    "budget": 14,
    "once": 8,
    "best": 9,
}


def test_recomputation_fits_and_is_scored(tmp_path, capsys):
    (found,) = solve(tmp_path, [LADDER], "best", evaluations=2000)
    assert set(found) == {"name", "runs"}
    assert len(found["runs"]) == LADDER["best"]  # each run takes 1 s
    row = printed(capsys)
    assert (row["at best known"], row["added time above the least"]) == ("1", "0.00 %")
    with pytest.raises(command_line.UsageError, match="ladder is about recomputation"):
        solve(tmp_path, [LADDER], "heft")


def test_the_table_says_what_was_reached(tmp_path, capsys):
    solve(tmp_path, [FORK | {"best": 5}, FORK], "heft")
    row = printed(capsys)
    assert float(row.pop("s")) >= 0
    assert row == {
        "file": "instances",
        "method": "heft",
        "cases": "2",
        "mean gap": "20.00 %",  # of 7/5 and 7/7
        "worst gap": "40.00 %",
        "at best known": "1",
    }


def test_a_file_without_instances_is_solved_too(tmp_path, capsys):
    assert solve(tmp_path, [], "heft") == []
    assert printed(capsys)["cases"] == "0"


@pytest.mark.parametrize("method", HEURISTICS)
def test_what_a_heuristic_tries_is_counted(method, tmp_path, monkeypatch):
    tried = []
    counted = (
        (list_scheduling, "PartialSchedule"),
        (memory_orders, "peak_memory_of"),
        (order_splits, "peak_memory_of"),
    )
    for module, name in counted:
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, fn=whole: tried.append(1) or fn(*args))
    for processors in (1, 2, 3):
        tried.clear()
        solve(tmp_path, [FORK | {"processors": processors}], method)
        assert len(tried) == schedules_tried(method, processors)


def test_a_search_depends_on_its_seed(tmp_path):
    found = []
    for seed in (0, 1):
        # The program of the next test.
        found.append(solve(tmp_path, [tangle(16)], "brkga", evaluations=123, seed=seed))
    assert found[0] != found[1]


def test_instances_without_a_known_value_are_solved_too(tmp_path, capsys):
    (row,) = solve(tmp_path, [{k: v for k, v in FORK.items() if k != "best"}], "etf")
    assert max(s + t for s, t in zip(row["start"], FORK["tasks"], strict=True)) == 7
    assert "nan" not in capsys.readouterr().out


def test_a_case_is_solved_alike_alone_and_among_others(tmp_path):
    rows = [tangle(count) for count in (15, 16, 17)]
    shapes = {padding.bucket(makespan_instance(row, 2).graph) for row in rows}
    assert len(shapes) == 1  # they are solved together
    rows.append(rows[2] | {"name": "twin"})
    *_, found, twin = together = solve(tmp_path, rows, "brkga", evaluations=123)
    assert solve(tmp_path, rows[2:3], "brkga", evaluations=123) == together[2:3]
    assert twin["start"] != found["start"]  # found by chance, with a key of its own


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "is truncated, or no JSON file"),
        ('{"a": 1}', "holds a dict: expected a list of instances"),
        ("[1]", "instance 0 is not valid"),
        (json.dumps([FORK, {"name": "x"}]), "instance 1 is not valid: no 'sizes'"),
        (json.dumps([FORK | {"tasks": [1, -2, 3]}]), r"instance 0 is not valid: tasks\[1\]"),
        (json.dumps([FORK | {"edges": [[0, 1, 1], [1, 0, 1]]}]), "edges form a cycle"),
        (json.dumps([FORK | {"processors": 0}]), "instance 0 is not valid"),
    ],
)
def test_bad_files(text, message, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        main(Settings(path, solutions=tmp_path / "out.json"))
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "method has 'magic': expected some of heft, etf"),
        ({"evaluations": 0}, "evaluations is 0: expected 1 at least"),
    ],
)
def test_bad_settings(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Settings(tmp_path, solutions=tmp_path, **settings)


# Instances whose optima are proven in `tests/test_known_optima.py`.


@pytest.mark.parametrize("name", ["makespan", "peak_memory"])
def test_best_is_nearly_optimal_and_no_heuristic_is_better(name, tmp_path, capsys):
    instances = json.loads((DATA / f"{name}.json").read_text())
    by_name = {instance["name"]: instance for instance in instances}
    ratios = {}
    for method in ("best", *HEURISTICS):
        found = []
        for row in solve(tmp_path, instances, method, evaluations=2000):
            instance = by_name[row["name"]]
            known = instance if "best" in instance else instance["results"][str(row["processors"])]
            found.append(value(instance, row) / known["best"])
        ratios[method] = np.array(found)
        table = printed(capsys)
        assert table["mean gap"] == f"{100 * (ratios[method].mean() - 1):.2f} %"
        assert table["at best known"] == str(np.count_nonzero(ratios[method] == 1))
        assert ratios[method].shape == {"makespan": (5,), "peak_memory": (2,)}[name]
        assert (ratios[method] >= 1).all()
    assert all((ratios["best"] <= ratios[heuristic]).all() for heuristic in HEURISTICS)
    assert ratios["best"].mean() <= 1.02 < min(ratios[heuristic].mean() for heuristic in HEURISTICS)


# The yardsticks themselves, a few of each kind.


@pytest.fixture(scope="module")
def score():
    return independent_scorer().score


CHOICES = {
    "makespan_comm_small": lambda row: row["processors"] == 2 and 16 <= len(row["edges"]) < 24,
    "makespan_comm_planted": lambda row: row["processors"] == 2 and len(row["tasks"]) <= 50,
    "peak_memory": lambda row: 20 <= len(row["sizes"]) <= 60,
}


@pytest.mark.parametrize(("name", "most"), [*zip(CHOICES, (0.03, 0.12, 0.01), strict=True)])
def test_best_is_near_the_optimum_and_no_heuristic_is_better(name, most, score, tmp_path):
    rows = [row for row in json.loads((FOLDER / f"{name}.json").read_text()) if CHOICES[name](row)]
    rows = rows[::4] if len(rows) > 3 else rows
    values = {}
    for method in ("best", *HEURISTICS):
        scored = list(score(rows, solve(tmp_path, rows, method, evaluations=3000)))
        assert [error for *_, error in scored if error] == []
        values[method] = np.array([value / best for _, value, best, *_ in scored])
    assert len(values["best"]) == len(rows) > 0
    assert all((values["best"] <= values[heuristic]).all() for heuristic in HEURISTICS)
    assert values["best"].mean() <= 1 + most


def test_the_cases_of_every_file_are_read():
    if not FOLDER.is_dir():
        pytest.skip("needs the yardstick files, which do not come with gopt")
    counts = {"makespan_comm_small": 400, "makespan_comm_planted": 8, "makespan_nocomm": 720}
    for name, count in {**counts, "peak_memory": 53}.items():
        cases = read_cases(FOLDER / f"{name}.json")
        assert len(cases) == count and all(case.known for case in cases)


def test_methods_are_named_as_they_were():
    """A method's name stays valid."""
    assert set(METHODS) >= {"heft", "etf", "critical_path", "brkga", "best"}
    assert set(METHODS) >= {"depth_first", "breadth_first", "greedy_release"}
