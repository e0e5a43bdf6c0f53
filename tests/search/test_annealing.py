from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.search import annealing, random
from gopt.search.annealing import Settings, State
from gopt.search.loop import LoopResult
from tests.search.checks import assert_seeded, assert_vmappable
from tests.search.watched import TEMPLATE, Watched, cost, genes, population
from tests.tiers import slow


def run(key: jax.Array, cost: Any, **settings: Any) -> LoopResult:
    return jax.jit(lambda key: annealing.minimize(key, cost, TEMPLATE, **settings))(key)


@pytest.mark.parametrize(
    ("evaluations", "chains", "blocks"),
    [
        (1, 1, [1]),
        (17, 5, [5, 5, 5, 2]),
        *slow((4, 1, [1, 1, 1, 1]), (2, 5, [2]), (5, 5, [5]), (6, 5, [5, 1]), (15, 5, [5, 5, 5])),
    ],
)
def test_the_budget_is_exact_and_the_best_of_all_is_returned(evaluations, chains, blocks):
    watched = Watched()
    settings = Settings(chains=chains, first_temperature=1, last_temperature=0.1)
    result = run(jax.random.key(1), watched, evaluations=evaluations, settings=settings)
    watched.assert_matches(result, blocks)
    assert result.last.cost.shape == (chains,)


@pytest.mark.slow
def test_given_candidates_are_counted_and_the_best_of_them_are_the_start():
    known = population(np.linspace(0, 1, 28).reshape(4, 7))
    watched = Watched()
    settings = Settings(chains=3, first_temperature=0, last_temperature=0)
    result = run(jax.random.key(0), watched, evaluations=9, settings=settings, initial=known)
    watched.assert_matches(result, [4, 3, 2])
    np.testing.assert_array_equal(watched.genes[0], genes(known))
    ranked = genes(known)[np.argsort(watched.costs[0])][:3]
    assert ((watched.genes[1] != ranked).sum(1) == 1).all()  # one gene moved


def test_few_candidates_are_taken_in_turn():
    known = population(np.arange(14).reshape(2, 7) / 14)
    state = annealing.init(known, jnp.float32([3, 2]), settings=Settings(chains=5))
    assert state.cost.tolist() == [2, 3, 2, 3, 2]
    np.testing.assert_array_equal(genes(state.keys), genes(known)[[1, 0, 1, 0, 1]])
    jax.tree.map(np.testing.assert_array_equal, state.keys, state.best_keys)


@pytest.mark.slow
def test_a_run_beats_random_search():
    result = run(jax.random.key(0), cost, evaluations=2000)
    drawn = jax.jit(lambda key: random.minimize(key, cost, TEMPLATE, evaluations=2000))
    assert result.cost < 1e-3 < drawn(jax.random.key(0)).cost
    assert (np.diff(result.history) <= 0).all()


def chains_at(costs: Any) -> State:
    costs = jnp.asarray(costs, jnp.float32)
    keys = population(np.zeros((len(costs), 7)))
    return State(keys, costs, keys, costs)


def tell(state: State, costs: Any, temperature: float, seed: int = 0) -> State:
    costs = jnp.asarray(costs, jnp.float32)
    keys = population(np.ones((len(costs), 7)))
    return annealing.tell(jax.random.key(seed), state, keys, costs, temperature=temperature)


@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_better_and_equal_candidates_are_always_taken(temperature):
    state = tell(chains_at([2.0] * 1000), [2.0] * 500 + [1.0] * 500, temperature)
    assert state.cost.tolist() == [2.0] * 500 + [1.0] * 500
    assert (genes(state.keys) == 1).all()
    # The best that was met changes only for a better one.
    assert (genes(state.best_keys)[:500] == 0).all() and (genes(state.best_keys)[500:] == 1).all()
    assert state.best_cost.tolist() == state.cost.tolist()


def test_worse_candidates_are_never_taken_at_temperature_zero():
    state = tell(chains_at([2.0] * 1000), [np.nextafter(np.float32(2), 3)] * 1000, 0.0)
    assert (genes(state.keys) == 0).all() and (state.cost == 2).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize(("worse", "temperature"), [(0.1, 0.1), (0.1, 0.05), (0.02, 0.1)])
def test_worse_candidates_are_taken_by_chance(worse, temperature, scale):
    count = 20_000
    state = tell(chains_at([scale] * count), [scale * (1 + worse)] * count, temperature)
    taken = genes(state.keys).all(1)
    assert abs(taken.mean() - np.exp(-worse / temperature)) < 0.012
    np.testing.assert_array_equal(taken, np.asarray(state.cost) > np.float32(scale))
    assert (state.best_cost == np.float32(scale)).all() and (genes(state.best_keys) == 0).all()


def test_chains_without_a_candidate_stay():
    state = tell(chains_at([2.0] * 4), [1.0] * 3, 0.1)
    assert state.cost.tolist() == [1, 1, 1, 2]
    assert genes(state.keys)[:, 0].tolist() == [1, 1, 1, 0]


def test_temperature_falls_from_hot_to_cold():
    """Each candidate carries where its chain was, so that one sees which of them were taken."""
    parents, drawn = [], []

    def neighbour(key: jax.Array, keys: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"x": jax.random.uniform(key), "parent": keys["x"]}

    def note(keys: dict[str, jax.Array]) -> None:
        parents.append(np.array(keys["parent"]))
        drawn.append(np.array(keys["x"]))

    def watched(keys: dict[str, jax.Array]) -> jax.Array:
        jax.debug.callback(note, keys, ordered=True)
        return 1 + keys["x"]

    template = {"x": jnp.zeros(()), "parent": jnp.zeros(())}
    jax.jit(
        lambda key: annealing.minimize(
            key,
            watched,
            template,
            evaluations=101 * 50,
            settings=Settings(chains=50, first_temperature=1e4, last_temperature=1e-4),
            neighbour=neighbour,
        )
    )(jax.random.key(0))
    jax.effects_barrier()
    worse = np.array(drawn[1:-1]) > np.array(parents[1:-1])
    taken = np.array(parents[2:]) == np.array(drawn[1:-1])
    assert taken[:20][worse[:20]].all()
    assert not taken[-10:][worse[-10:]].any()
    assert taken[~worse].all()
    middle = slice(40, 60)  # temperature 1: e^-x for x in 0..1/2
    assert 0.5 < taken[middle][worse[middle]].mean() < 0.95


@pytest.mark.slow
def test_shift_moves_one_gene_by_steps_of_all_sizes():
    start = population(np.full((1, 7), 0.5))
    one = jax.tree.map(lambda leaf: leaf[0], start)
    keys = jax.vmap(lambda key: annealing.shift(key, one))(
        jax.random.split(jax.random.key(0), 5000)
    )
    moved = genes(keys) - 0.5
    assert ((moved != 0).sum(1) == 1).all()
    assert np.abs(moved).max() <= 0.5
    counts = (moved != 0).sum(0) / len(moved)
    np.testing.assert_allclose(counts, [1 / 6] * 3 + [1 / 8] * 4, atol=0.02)  # leaves alike
    sizes = np.log10(np.abs(moved).sum(1))
    shares = np.histogram(sizes, [-9, -3, -2, -1, 0])[0] / len(sizes)
    assert (np.abs(shares - [0.1, 1 / 3, 1 / 3, 0.25]) < 0.1).all()
    assert abs(np.mean(moved.sum(1) > 0) - 0.5) < 0.03


def test_keys_are_reflected_at_both_ends():
    keys = jnp.float32([-1.25, -0.25, 0, 0.3, 1, 1.2, 2.5])
    np.testing.assert_allclose(
        annealing.reflect(keys), [0.75, 0.25, 0, 0.3, 1, 0.8, 0.5], atol=1e-6
    )


@pytest.mark.slow
def test_units_of_the_cost_do_not_matter():
    runs = [
        run(jax.random.key(0), lambda keys, s=scale: s * (1 + cost(keys)), evaluations=300)
        for scale in (1, 2**20)
    ]
    jax.tree.map(np.testing.assert_array_equal, runs[0].best, runs[1].best)
    np.testing.assert_array_equal(runs[0].history * 2**20, runs[1].history)


@pytest.mark.slow
def test_vmap_over_problems_equals_one_at_a_time():
    assert_vmappable(partial(annealing.minimize, settings=Settings(chains=4)))


def test_the_same_key_gives_the_same_result_and_another_one_does_not():
    assert_seeded(partial(run, cost=cost, evaluations=250))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chains": 0}, "chains is 0: expected 1 at least"),
        (
            {"first_temperature": 0.1, "last_temperature": 0.2},
            "first_temperature is 0.1, last_temperature is 0.2: expected",
        ),
        ({"last_temperature": -0.1}, "last_temperature is -0.1"),
        ({"first_temperature": np.inf}, "first_temperature is inf"),
        ({"first_temperature": np.nan}, "first_temperature is nan"),
    ],
)
def test_settings_out_of_range_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


def test_budgets_out_of_range_raise():
    with pytest.raises(ValueError, match="evaluations is 0: expected 1 at least"):
        run(jax.random.key(0), cost, evaluations=0)
    with pytest.raises(ValueError, match="evaluations is 2: expected 3 at least"):
        run(jax.random.key(0), cost, evaluations=2, initial=population(np.zeros((3, 7))))
