"""The experiment that compares costs of fusion with time: a small run, and its figures."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import fuse, fused_time
from experiments.fused_time import Settings, drawn, main, measure, summary, typical
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.fusion import CPU
from gopt.fusion.plan import Fusion
from gopt.graph.tracing import trace
from gopt.measure.timing import Times
from gopt.program.program import trace_program
from gopt.result import Candidate, Result
from gopt.workloads.cases import Case, floats
from tests.measure.row_files import stored_rows

pytestmark = pytest.mark.slow


def layers(x, w):
    for _ in range(3):
        x = jnp.tanh(x @ w) * jax.nn.softmax(x) + jnp.exp(-x)
    return x


@pytest.fixture
def tiny(monkeypatch):
    case = Case(layers, (floats(32, 16), floats(16, 16)))
    monkeypatch.setitem(fused_time.BLOCKS, "tiny", lambda: case)


def test_a_run(tiny, tmp_path, capsys):
    main(Settings(blocks=("tiny",), configurations=4, repeats=1, folder=tmp_path))
    assert "tiny" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "fused_time.json").read_text())
    assert row["difference"] < 1e-5
    assert -1 <= row["rank of fitted"] <= 1
    assert np.shape(row["seconds"]) == (8, 2)
    assert len(row["sums"]) == len(row["counts"]) == len(row["shares"]) == 8
    assert (tmp_path / "tiny_2_rounds.sqlite").exists()
    assert (tmp_path / "table.md").exists()
    assert json.loads((tmp_path / "settings.json").read_text())["configurations"] == 4
    before = stored_rows(tmp_path / "tiny_2_rounds.sqlite")
    measure("tiny", Settings(blocks=("tiny",), configurations=4, repeats=1, folder=tmp_path))
    assert stored_rows(tmp_path / "tiny_2_rounds.sqlite") == before  # each kernel is timed once


def two_rounds(seconds):
    """The second on a machine that was slower."""
    return np.stack([seconds, 1.1 * seconds], 1)


def test_a_lucky_turn_of_one_program_counts_as_little_as_a_slow_turn_of_all():
    seconds = np.array([[2.0, 4.0, 2.0], [3.0, 6.0, 3.0], [4.0, 8.0, 3.2]])
    np.testing.assert_allclose(typical(seconds), [2, 3, 4])


def test_what_is_predicted_perfectly_correlates():
    rng = np.random.default_rng(0)
    counts = rng.uniform(1, 2, (20, 5))
    time = counts @ np.array([1, 2, 0, 3, 1e-3])
    shares = np.linspace(0, 1, 20)
    rest = {"sums": -time, "counts": counts, "shares": shares}
    found = summary({"seconds": two_rounds(time), **rest})
    assert found["rank of fitted"] == pytest.approx(1)
    assert found["rank of halves"] == pytest.approx(1)
    assert found["error"] < 1e-6
    assert found["rank of sums"] == pytest.approx(-1)
    assert found["rank of sums, shares aside"] == pytest.approx(-1)
    own = two_rounds(counts @ np.array(CPU))
    assert summary({**rest, "seconds": own})["rank of CPU"] == pytest.approx(1)
    assert found["rank of CPU"] < 0.9
    assert found["best"] == time.min()


@pytest.mark.parametrize("centre", [0.0, 0.4])  # a valley at 0.4: fastest in between
def test_what_shares_explain_is_left_out(centre):
    rng = np.random.default_rng(1)
    shares = np.tile(np.linspace(0, 1, 100), 2)
    slope = np.repeat([1.0, -1.0], 100)  # it is another one with the other semantics
    of_shares = 9 + 4 * slope * (shares - centre) ** 2
    sums, time = (of_shares + 0.1 * rng.standard_normal(200) for _ in range(2))
    row = {"shares": shares, "counts": rng.uniform(1, 2, (200, 5))}
    found = summary({**row, "seconds": two_rounds(time), "sums": sums})
    assert found["rank of sums"] > 0.9
    assert abs(found["rank of sums, shares aside"]) < 0.5
    both = 0.3 * rng.standard_normal(200)  # what they have in common beside it is seen
    found = summary({**row, "seconds": two_rounds(time + both), "sums": sums + both})
    assert found["rank of sums, shares aside"] > 0.6


def test_configurations_go_from_nothing_to_everything():
    graph = trace(lambda x: jnp.tanh(x) * 2 + 1, jnp.ones(3)).graph
    problem = prepare_fusion(graph, unit_rate_devices(1))
    fuse = drawn(problem, 10, 0)
    assert not fuse[0].any()
    assert fuse[-1].all()
    assert fuse[5][problem.configurable].all()  # XLA's own


def test_unknown_blocks_are_refused():
    with pytest.raises(ValueError, match="blocks has 'none'"):
        main(Settings(blocks=("none",)))


def test_settings_are_checked():
    with pytest.raises(ValueError, match="configurations is 1: expected 2 at least"):
        Settings(configurations=1)
    with pytest.raises(ValueError, match="repeats is 0"):
        Settings(repeats=0)


def test_values_that_differ_are_an_error(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(fused_time, "largest_difference", lambda *_: 0.1)
    with pytest.raises(RuntimeError, match="tiny, joined 0: values differ by 1e-01"):
        measure("tiny", Settings(blocks=("tiny",), configurations=2, repeats=1, folder=tmp_path))


def test_blocks_are_fused_and_compared(tiny, tmp_path, monkeypatch):
    fuse.main(fuse.Settings(blocks=("tiny",), evaluations=3, repeats=2, folder=tmp_path))
    rows = json.loads((tmp_path / "fuse.json").read_text())
    assert [row["program"] for row in rows][:2] == ["XLA", "XLA, memory scheduler"]
    assert rows[0]["ratio"][0] == rows[0]["wall ratio"][0] == 1
    assert sum(row["chosen"] for row in rows) == 1
    assert all((row["same ratio"] is None) == (row["kernels"] is None) for row in rows)
    assert all(row["difference"] < 1e-5 and len(row["seconds"]) == 2 for row in rows)
    for name in ("programs.md", "chosen.md"):
        assert "tiny" in (tmp_path / name).read_text()
    assert json.loads((tmp_path / "settings.json").read_text())["repeats"] == 2


def test_programs_are_compared_with_the_faster_of_the_same_equations():
    def made(name, seconds, kernels=None):
        times = Times(np.array(seconds), np.array(seconds))
        groups = None if kernels is None else ((0,),) * kernels
        return Candidate(name, Fusion(True, None, groups, {}), times=times, base_times=times)

    own = [made("XLA", [1.0] * 24), made("XLA, memory scheduler", [0.9] * 24)]
    ours = made("searched", [0.5, 0.6] * 12, 3)
    program = trace_program(jnp.sin, 1.0)

    def ratio(*candidates):
        return fuse._of_same_equations(Result(program, candidates, 0, "", None), ours)

    assert ratio(*own, ours) == pytest.approx((2 / 3,) * 3)
    # Of the simplified equations, the faster by even rounds; odd rounds are compared.
    first = made("XLA, simplified", [0.4, 1.2] * 12)
    second = made("XLA, simplified, memory scheduler", [0.5, 0.3] * 12)
    assert ratio(*own, first, second, ours) == pytest.approx((0.5,) * 3)


def test_a_block_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(ValueError, match="blocks has 'tiny'"):
        fuse.main(fuse.Settings(blocks=("tiny",), folder=tmp_path))
