"""Reports: gains, families, saved runs and figures."""

import json

import numpy as np

from experiments.harness import report
from experiments.harness.report import Row
from experiments.harness.runs import Runs


def found(*costs):
    """Runs whose cost halves in the second of two entries."""
    cost = np.array(costs)
    return Runs(cost, np.array([1, 5]), np.stack([2 * cost, cost], 1), seconds=1.5)


def row(family, **methods):
    return Row("x", family, methods)


def test_rows_of_a_family_count_as_one():
    rows = [row(family) for family in "baba"]
    means = report.by_family(np.array([1.0, 5.0, 3.0, 7.0]), rows)
    assert means.tolist() == [6, 2]
    assert report.percent(np.array([0.01, 0.05, 0.03, 0.07]), rows).startswith("+4.00 ± ")
    assert report.percent(np.array([0.01, np.nan, 0.03, 0.07]), rows) == ""


def test_gains_are_of_mean_costs():
    rows = [row("a", x=found(8.0, 10.0), base=found(10.0)), row("a", base=found(10.0))]
    np.testing.assert_allclose(report.gains(rows, "x", "base"), [0.1, np.nan])


def test_the_best_known_cost_is_that_of_all_runs_that_fit():
    one = row("a", x=found(np.nan, 9.0))
    assert one.known == 9
    assert one._replace(others={"long": {"x": found(7.0)}}).known == 7
    more = row("a", x=found(9.0), ordered=found(8.0))  # decides an order, too
    assert more.known == 8 and more._replace(beyond=("ordered",)).known == 9


def test_long_histories_are_shortened_where_they_are_saved(tmp_path):
    steps = np.arange(1, 1001)
    long = Runs(np.array([0.0]), steps, 1000.0 - steps[None])
    rows = [Row("x", "a", {"long": long, "short": found(1.0, 2.0)}, {}, {"bound": 0})]
    report.save(rows, tmp_path / "runs.json")
    (saved,) = json.loads((tmp_path / "runs.json").read_text())
    assert saved["name"] == "x" and saved["bound"] == 0
    kept = saved["found"]["long"]
    assert kept["evaluations"][0] == 1 and kept["evaluations"][-1] == 1000
    assert len(kept["evaluations"]) <= 100 and kept["history"][0][-1] == 0
    assert saved["found"]["short"]["history"] == [[2, 1], [4, 2]]
