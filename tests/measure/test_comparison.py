"""The rule for "significantly faster", on made-up times."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gopt.measure.comparison import FEWEST_TEST_ROUNDS, choose, sign_flip_p
from gopt.measure.timing import Times

pytestmark = pytest.mark.small


def times(process, wall=None):
    return Times(np.asarray(process, float), np.asarray(process if wall is None else wall, float))


BASE = np.arange(1.0, 13)


@pytest.mark.parametrize(
    ("ratios", "chosen", "why"),
    [
        ([0.9] * 12, "ours", "it is significantly faster than XLA (p = 0.031)"),
        ([0.9] * 11 + [1.1], "XLA", "ours is not significantly faster (p = 0.062)"),
        ([1.1] + [0.9] * 11, "ours", "it is significantly faster"),  # the odd rounds judge
        ([1.1] * 12, "XLA", "nothing is faster"),
        ([1.0] * 12, "XLA", "nothing is faster"),
        ([0.9, 1.1] * 6, "XLA", "ours is slower in the rounds that judge (p = 0.031)"),
    ],
)
def test_only_what_is_significantly_faster_is_chosen(ratios, chosen, why):
    choice = choose({"XLA": times(BASE), "ours": times(ratios * BASE)})
    assert choice.name == chosen
    assert choice.reason.startswith(why)


@pytest.mark.parametrize(
    ("wall", "chosen"),
    [
        ([1.2] * 12, "XLA"),
        ([1.2] * 11 + [0.9], "ours"),  # not significantly slower
        ([0.9, 1.2] * 6, "XLA"),
        ([1.2, 1.0] * 6, "ours"),
    ],
)
def test_what_takes_significantly_more_wall_time_is_not_chosen(wall, chosen):
    choice = choose({"XLA": times(BASE), "ours": times(BASE / 2, wall * BASE)})
    assert choice.name == chosen
    assert ("takes significantly more wall time" in choice.reason) == (chosen == "XLA")


def test_few_rounds_choose_the_base():
    few = np.ones(FEWEST_TEST_ROUNDS - 1)
    choice = choose({"XLA": times(few), "ours": times(0.1 * few)})
    assert choice == ("XLA", "11 rounds are too few to tell what is faster: 12 at least")


def test_what_is_refused_is_not_chosen():
    programs = {"XLA": times(BASE), "wrong": times(0.1 * BASE), "ours": times(0.5 * BASE)}
    choice = choose(programs, {"wrong": "its values differ"})
    assert choice.name == "ours"
    assert choice.reason.endswith("; wrong is refused: its values differ")
    del programs["ours"]
    assert choose(programs, {"wrong": "its values differ"}).name == "XLA"


def test_all_programs_are_timed_in_the_same_rounds():
    with pytest.raises(ValueError, match=r"times\['ours'\] has 3 rounds: expected 12"):
        choose({"XLA": times(BASE), "ours": times(BASE[:3])})


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [12, 20, 40])
@pytest.mark.parametrize("heavy", [False, True])
def test_noise_is_rarely_chosen(rounds, heavy):
    """Ten programs as fast as the first one, in rounds on a machine whose speed drifts."""
    rng = np.random.default_rng(rounds)
    chosen, runs = 0, 400
    for _ in range(runs):
        speed = np.exp(np.cumsum(0.1 * rng.standard_normal(rounds)))
        noise = rng.standard_cauchy if heavy else rng.standard_normal
        drawn = np.exp(np.clip(0.05 * noise((11, rounds)), -3, 3)) * speed
        found = choose({str(k): times(row) for k, row in enumerate(drawn)})
        chosen += found.name != "0"
    assert chosen / runs < 0.045  # 2.5 % by the rule, faster being one of two sides


def test_a_real_gain_is_found():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(100):
        drawn = np.exp(0.03 * rng.standard_normal((2, 20)))
        found += choose({"XLA": times(drawn[0]), "ours": times(0.9 * drawn[1])}).name == "ours"
    assert found > 95


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=2, max_size=30))
def test_p_values_are_fair(values):
    values = np.array(values)
    p = sign_flip_p(values)
    assert 0 < p <= 1
    assert sign_flip_p(-values) == pytest.approx(p, abs=0.02 if len(values) > 13 else 1e-12)
    assert sign_flip_p(2 * values) == p


@pytest.mark.parametrize(("rounds", "tolerance"), [(6, 1e-12), (9, 1e-12), (14, 0.02)])
def test_p_values_are_shares_of_sign_vectors(rounds, tolerance):
    values = np.random.default_rng(rounds).standard_normal(rounds) + 0.5
    sums = np.array([*itertools.product((-1.0, 1.0), repeat=rounds)]) @ values
    expected = np.mean(np.abs(sums) >= abs(values.sum()) - 1e-9)
    assert sign_flip_p(values) == pytest.approx(expected, abs=tolerance)
