from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.search import brkga
from gopt.search.brkga import Settings, State
from gopt.search.loop import LoopResult
from tests.search.checks import assert_seeded, assert_vmappable
from tests.search.watched import TEMPLATE, Watched, cost, genes, population
from tests.tiers import slow

SIZES = Settings(population=20, elites=5, mutants=3)


@partial(jax.jit, static_argnames=("cost", "evaluations", "settings", "relaxed"))
def run(key: jax.Array, cost: Any, **settings: Any) -> LoopResult:
    return brkga.minimize(key, cost, TEMPLATE, **settings)


def generation(seed: int = 0) -> State:
    keys = brkga.init(jax.random.key(seed), TEMPLATE, settings=SIZES)
    return brkga.sort(keys, cost(keys))


@pytest.mark.parametrize(
    ("evaluations", "blocks"),
    [
        (1, [1]),
        (64, [20, 15, 15, 14]),
        *slow((20, [20]), (21, [20, 1]), (65, [20, 15, 15, 15])),
    ],
)
def test_the_budget_is_exact_and_the_best_of_all_is_returned(evaluations, blocks):
    watched = Watched()
    result = run(jax.random.key(1), watched, evaluations=evaluations, settings=SIZES)
    watched.assert_matches(result, blocks)


@pytest.mark.slow
def test_default_sizes_are_exact_too():
    watched = Watched()
    result = run(jax.random.key(1), watched, evaluations=300)
    watched.assert_matches(result, [100, 80, 80, 40])


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 20])
def test_a_relaxed_cost_comes_first_and_hands_over_its_last_generation(count):
    def far(keys: Any) -> jax.Array:
        return jnp.sum((keys["a"] - 0.8) ** 2, -1)

    first, last = Watched(far), Watched()
    own = jax.tree.map(lambda x: x[:count], generation(3).keys)
    result = run(
        jax.random.key(1), last, evaluations=200, settings=SIZES, initial=own, relaxed=first
    )
    jax.effects_barrier()
    blocks = [20, *5 * [15], 5]
    assert [len(block) for block in first.costs] == blocks
    assert [len(block) for block in last.costs] == blocks
    np.testing.assert_array_equal(first.genes[0][:count], genes(own))
    np.testing.assert_array_equal(last.genes[0][:count], genes(own))
    every = np.concatenate(first.genes)
    elites = every[np.argsort(np.concatenate(first.costs), stable=True)]
    np.testing.assert_array_equal(last.genes[0][count : count + 5], elites[: min(5, 20 - count)])
    assert (result.history[:7] == np.inf).all()
    np.testing.assert_array_equal(result.evaluations, np.cumsum(2 * blocks))
    tail = result._replace(
        history=result.history[7:], evaluations=result.evaluations[7:] - jnp.int32(100)
    )
    last.assert_matches(tail, blocks)


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [1, 79])
def test_a_small_budget_is_not_shared_with_a_relaxed_cost(evaluations):
    watched = Watched()
    some = dict(evaluations=evaluations, settings=SIZES)
    result = run(jax.random.key(1), cost, relaxed=watched, **some)
    jax.effects_barrier()
    assert not watched.costs
    jax.tree.map(np.testing.assert_array_equal, result, run(jax.random.key(1), cost, **some))


@pytest.mark.slow
def test_a_run_beats_its_first_population_and_never_worsens():
    result = run(jax.random.key(0), cost, evaluations=2000, settings=SIZES)
    assert (np.diff(result.history) <= 0).all()
    assert result.cost < 0.01 < result.history[0]
    assert (np.diff(result.last.cost) >= 0).all()
    np.testing.assert_array_equal(cost(result.last.keys), result.last.cost)


@pytest.mark.slow
def test_elites_are_kept_by_rank():
    old = generation()
    keys = brkga.ask(jax.random.key(1), old, settings=SIZES)
    new = brkga.tell(old, keys, cost(keys), settings=SIZES)
    pool = np.concatenate([old.cost[:5], cost(keys)])
    np.testing.assert_array_equal(new.cost, np.sort(pool))
    np.testing.assert_array_equal(cost(new.keys), new.cost)
    rows = {row.tobytes() for row in genes(new.keys)}
    assert {row.tobytes() for row in genes(old.keys)[:5]} <= rows
    assert not {row.tobytes() for row in genes(old.keys)[5:]} & rows
    # Ranks decide, not values: any growing map of the costs leaves the same generation.
    cubed = brkga.tell(old._replace(cost=old.cost**3), keys, cost(keys) ** 3, settings=SIZES)
    jax.tree.map(np.testing.assert_array_equal, cubed.keys, new.keys)


def test_equal_costs_keep_their_order():
    keys = population(np.arange(70).reshape(10, 7) / 70)
    state = brkga.sort(keys, jnp.array([1.0, 0.0] * 5))
    np.testing.assert_array_equal(genes(state.keys)[:, 0] * 10, [1, 3, 5, 7, 9, 0, 2, 4, 6, 8])


def mates(state: State, bias: Any, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Which genes of each child are an elite's, and which another parent's, `[children, 7]`."""
    keys = brkga.ask(jax.random.key(seed), state, settings=SIZES, bias=bias)
    children, parents = genes(keys)[:12], genes(state.keys)
    assert len(genes(keys)) == 15
    same = children[:, None] == parents[None]
    elite = same[:, :5].sum(-1).argmax(1)
    other = 5 + same[:, 5:].sum(-1).argmax(1)
    rows = np.arange(12)
    return same[rows, elite], same[rows, other]


@pytest.mark.slow
def test_children_have_one_elite_parent_and_one_other():
    from_elite, from_other = mates(generation(), 0.5)
    assert (from_elite ^ from_other).all()
    assert 0 < from_elite.sum() < from_elite.size


def test_a_bias_of_one_copies_elites_and_of_zero_the_others():
    assert mates(generation(), 1.0)[0].all()
    assert mates(generation(), 0.0)[1].all()
    assert mates(generation(), 1)[0].all()


def test_bias_differs_by_gene():
    bias = {"a": np.float32([1, 0, 1]), "b": (np.float32([[0], [1]]),)}
    from_elite, from_other = mates(generation(), bias)
    assert from_elite.all(0).tolist() == [True, False, True, False, False, True, True]
    assert from_other.all(0).tolist() == [False, True, False, True, True, False, False]


@pytest.mark.parametrize("bias", [0.2, 0.7])
def test_bias_is_the_share_of_genes_from_elites(bias):
    state = generation()
    share = np.mean([mates(state, bias, seed)[0].mean() for seed in range(60)])
    # The likelier parent was guessed from the genes, so 0.2 reads slightly high.
    assert abs(share - bias) < 0.03


def test_bias_of_another_structure_raises():
    with pytest.raises(ValueError):
        brkga.ask(jax.random.key(0), generation(), settings=SIZES, bias={"a": 0.5})


@pytest.mark.slow
def test_parents_are_drawn_evenly():
    state = generation()
    elites, others = np.zeros(5), np.zeros(15)
    for seed in range(100):
        for count, bias, first in ((elites, 1.0, 0), (others, 0.0, 5)):
            keys = brkga.ask(jax.random.key(seed), state, settings=SIZES, bias=bias)
            same = (genes(keys)[:12, None] == genes(state.keys)[None]).all(-1)
            count += same[:, first : first + len(count)].sum(0)
    assert elites.sum() == others.sum() == 1200
    assert np.abs(elites / 1200 - 1 / 5).max() < 0.05
    assert np.abs(others / 1200 - 1 / 15).max() < 0.03


def test_mutants_and_the_first_population_come_from_the_proposal():
    def high(u: dict[str, Any]) -> dict[str, Any]:
        return jax.tree.map(lambda leaf: 0.75 + leaf / 4, u)

    first = genes(brkga.init(jax.random.key(0), TEMPLATE, settings=SIZES, proposal=high))
    assert first.shape == (20, 7) and first.min() >= 0.75 and first.max() <= 1
    low = brkga.init(
        jax.random.key(1), TEMPLATE, settings=SIZES, proposal=lambda u: population(genes(u) / 4)
    )
    state = brkga.sort(low, cost(low))
    asked = genes(brkga.ask(jax.random.key(2), state, settings=SIZES, proposal=high))
    assert (asked[:12] <= 0.25).all() and (asked[12:] >= 0.75).all()
    assert len(np.unique(asked[12:])) == 21


def test_given_candidates_come_first():
    known = population(np.full((2, 7), 0.25))
    known["a"] = known["a"].at[1].set(0.3)
    known["b"] = (known["b"][0].at[1].set(0.9),)
    watched = Watched()
    result = run(jax.random.key(0), watched, evaluations=50, settings=SIZES, initial=known)
    watched.assert_matches(result, [20, 15, 15])
    np.testing.assert_array_equal(watched.genes[0][:2], genes(known))
    assert result.cost == 0 and (result.history == 0).all()
    plain = Watched()
    run(jax.random.key(0), plain, evaluations=20, settings=SIZES)
    jax.effects_barrier()
    np.testing.assert_array_equal(watched.genes[0][2:], plain.genes[0][2:])


def test_given_candidates_may_fill_the_budget():
    known = population(np.linspace(0, 1, 21).reshape(3, 7))
    watched = Watched()
    result = run(jax.random.key(0), watched, evaluations=3, settings=SIZES, initial=known)
    watched.assert_matches(result, [3])
    np.testing.assert_array_equal(watched.genes[0], genes(known))


@pytest.mark.slow
def test_vmap_over_problems_equals_one_at_a_time():
    assert_vmappable(partial(brkga.minimize, settings=SIZES))


def test_the_same_key_gives_the_same_result_and_another_one_does_not():
    assert_seeded(partial(run, cost=cost, evaluations=250))


@pytest.mark.slow
def test_no_mutants_and_no_children_are_settings():
    for mutants, fresh in ((0, 15), (15, 15)):
        sizes = Settings(population=20, elites=5, mutants=mutants)
        watched = Watched()
        result = run(jax.random.key(0), watched, evaluations=40, settings=sizes)
        watched.assert_matches(result, [20, fresh, 5])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"elites": 0}, r"elites is 0: expected 1\.\.99"),
        ({"elites": 100}, r"elites is 100: expected 1\.\.99"),
        ({"population": 1, "elites": 1}, "population is 1: expected 2 at least"),
        ({"mutants": -1}, r"mutants is -1: expected 0\.\.80"),
        ({"mutants": 81}, r"mutants is 81: expected 0\.\.80"),
    ],
)
def test_settings_out_of_range_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


def test_budgets_out_of_range_raise():
    known = population(np.zeros((21, 7)))
    with pytest.raises(ValueError, match="evaluations is 0: expected 1 at least"):
        run(jax.random.key(0), cost, evaluations=0)
    with pytest.raises(ValueError, match="evaluations is 20: expected 21 at least"):
        run(jax.random.key(0), cost, evaluations=20, initial=known)
    with pytest.raises(ValueError, match="initial has 21 candidates: expected 20 at most"):
        run(jax.random.key(0), cost, evaluations=50, settings=SIZES, initial=known)
