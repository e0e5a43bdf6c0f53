"""Guided search takes what the guide says, and keeps what is no worse."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.search import guided
from tests.tiers import slow

WEIGHTS = jnp.array([3.0, -1.0, 2.0, -4.0, 0.5, -2.0])


def cost(decisions):
    return decisions @ WEIGHTS


def truth(decisions):
    """What each flip saves."""
    return jnp.where(decisions > 0, WEIGHTS, -WEIGHTS)


def alike(decisions):
    return jnp.zeros(len(decisions))


def minimize(key, *args, **settings):
    """Runs the search as one program."""
    return jax.jit(lambda key: guided.minimize(key, *args, **settings))(key)


def run(guide, evaluations, key=0, start=None, **settings):
    start = jnp.array([1, 0, 1, 0, 1, 0]) if start is None else start
    return minimize(
        jax.random.key(key),
        cost,
        start,
        guide,
        evaluations=evaluations,
        settings=guided.Settings(**settings),
    )


def taken(guide, evaluations, **settings):
    """The decisions that were taken, in order."""
    nodes = []

    def note(key, decisions, node):
        jax.debug.callback(lambda n: nodes.append(int(n)), node, ordered=True)
        return decisions  # nothing changes, so that what is taken depends on the guide alone

    minimize(
        jax.random.key(0),
        cost,
        jnp.zeros(6, jnp.int32),
        guide,
        evaluations=evaluations,
        settings=guided.Settings(**settings),
        moves=(note,),
    )
    jax.effects_barrier()
    return nodes


def test_a_perfect_guide_needs_one_evaluation_for_each_flip():
    found = run(truth, 7, top_share=0.01, guide_interval=1, rest_share=0.0)
    assert found.decisions.tolist() == [0, 1, 0, 1, 0, 1]
    np.testing.assert_allclose(found.history, [5.5, 1.5, -1.5, -3.5, -5.5, -6.5, -7.0])
    assert found.cost == cost(found.decisions) == -7.0


@pytest.mark.parametrize("evaluations", [1, 40, 41, 42])
def test_as_many_are_evaluated_as_asked_for(evaluations):
    count = []

    def counted(decisions):
        jax.debug.callback(lambda d: count.append(len(d)), decisions, ordered=True)
        return cost(decisions)

    found = minimize(
        jax.random.key(0), counted, jnp.zeros(6, jnp.int32), alike, evaluations=evaluations
    )
    jax.effects_barrier()
    assert sum(count) == evaluations and found.history.shape == (evaluations,)
    assert (np.diff(found.history) <= 0).all()
    assert found.history[-1] == found.cost == cost(found.decisions)


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (0, {"top_share": 0.01, "rest_share": 0.9, "guide_interval": 1}),
        *slow(
            (1, {"top_share": 0.01, "rest_share": 0.5, "guide_interval": 7}),
            (2, {"top_share": 0.3, "rest_share": 0.3, "guide_interval": 40}),
            (3, {"top_share": 0.2, "rest_share": 0.0, "guide_interval": 5}),
            (4, {"top_share": 1.0, "rest_share": 0.7, "guide_interval": 3}),
        ),
    ],
)
def test_a_run_step_by_step(seed, settings):
    """What each step may take, by the scores of its block; and what is kept of it."""
    count, evaluations = 12, 50
    rng = np.random.default_rng(seed)
    table = jnp.asarray(rng.integers(-9, 10, (count, count)))
    score = jnp.asarray(rng.integers(-3, 4, (count, count)) / 2, jnp.float32)
    never = rng.random(count) < 0.3
    steps = []

    def cost(decisions):
        return jnp.einsum("pi,ij,pj->p", decisions, table, 1 - decisions)

    def guide(decisions):  # with ties
        return jnp.where(never, -jnp.inf, score @ decisions)

    def change(key, decisions, node):
        found = guided.flip(key, decisions, node).at[(node + 1) % count].set(0)
        values = jax.random.key_data(key), decisions, node, found
        jax.debug.callback(lambda *x: steps.append([*map(np.array, x)]), *values, ordered=True)
        return found

    starts = jnp.asarray(rng.integers(0, 2, (50, count)))
    start = starts[jnp.argmax(cost(starts))]
    settings = guided.Settings(**settings)
    found = minimize(
        jax.random.key(seed),
        cost,
        start,
        guide,
        evaluations=evaluations,
        settings=settings,
        moves=(change,),
    )
    jax.effects_barrier()
    assert len(steps) == evaluations - 1
    assert len({tuple(key.tolist()) for key, *_ in steps}) == evaluations - 1

    here, awake, history = np.asarray(start), np.zeros(count, int), [int(cost(start[None])[0])]
    for k, (_, decisions, node, candidate) in enumerate(steps):
        if k % settings.guide_interval == 0:
            scores = np.asarray(guide(jnp.asarray(here)))
        np.testing.assert_array_equal(decisions, here)
        free = [i for i in range(count) if scores[i] > -np.inf and awake[i] <= k]
        assert free
        free.sort(key=lambda i: (-scores[i], i))
        few = max(int(settings.top_share * np.sum(~never)), 1)
        assert node in free[:few]
        awake[node] = k + 1 + int(settings.rest_share * np.sum(~never))
        now = int(cost(jnp.asarray(candidate)[None])[0])
        if now <= history[-1]:
            here = candidate
        history.append(min(now, history[-1]))
    assert found.history.tolist() == history and int(found.cost) == history[-1] < history[0]
    np.testing.assert_array_equal(found.decisions, here)


def test_what_rests_is_not_taken():
    nodes = taken(alike, 60, top_share=1.0, rest_share=0.7)  # of 6 decisions, for 4 steps
    for k, node in enumerate(nodes):
        assert node not in nodes[max(0, k - 4) : k]
    assert set(nodes) == set(range(6))


def test_what_may_not_be_taken_is_not_even_if_all_others_rest():
    scores = jnp.array([0.0, -jnp.inf, 2.0, -jnp.inf, -jnp.inf, 1.0])
    assert set(taken(lambda d: scores, 40, top_share=1.0, rest_share=0.5)) == {0, 2, 5}
    # Two of the three rest, not nine tenths of all.
    assert taken(lambda d: scores, 10, top_share=0.01, rest_share=0.9) == [2, 5, 0] * 3


def test_where_nothing_may_be_taken_nothing_changes():
    def guide(decisions):
        return jnp.full(6, -jnp.inf)

    start = jnp.array([1, 0, 1, 0, 1, 1])
    assert set(taken(guide, 5)) == {6}
    found = run(guide, 5, start=start)
    np.testing.assert_array_equal(found.decisions, start)
    assert (found.history == cost(start)).all()


def test_while_all_that_may_be_taken_rests_nothing_changes():
    """The guide excludes all but the two that were taken, which rest for 5 steps."""
    nodes = []

    def guide(decisions):
        only = jnp.where(jnp.arange(6) < 2, 1.0, -jnp.inf)
        return jnp.where(jnp.sum(decisions) == 2, only, 1.0)

    def change(key, decisions, node):
        jax.debug.callback(lambda n: nodes.append(int(n)), node, ordered=True)
        return guided.flip(key, decisions, node)

    found = minimize(
        jax.random.key(0),
        lambda decisions: -jnp.sum(decisions, -1),
        jnp.zeros(6, jnp.int32),
        guide,
        evaluations=8,
        settings=guided.Settings(top_share=0.01, rest_share=0.9, guide_interval=2),
        moves=(change,),
    )
    jax.effects_barrier()
    assert nodes == [0, 1, 6, 6, 6, 6, 0]
    assert found.decisions.tolist() == [1, 1, 0, 0, 0, 0]


def test_what_costs_the_same_is_kept():
    scores = jnp.array([0.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    found = minimize(
        jax.random.key(0),
        lambda decisions: jnp.full(len(decisions), 7),
        jnp.zeros(6, jnp.int32),
        lambda decisions: scores,
        evaluations=4,
        settings=guided.Settings(top_share=0.01, rest_share=0.9),
    )
    assert found.decisions.tolist() == [0, 1, 0, 1, 0, 1] and found.history.tolist() == [7] * 4


def test_without_rest_the_best_is_taken_again_and_again():
    assert set(taken(lambda d: jnp.arange(6.0), 20, top_share=0.01, rest_share=0.0)) == {5}


def test_of_those_that_do_not_rest_the_best_are_taken():
    scores = jnp.array([0.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    nodes = taken(lambda d: scores, 13, top_share=0.01, rest_share=0.9)  # all but one rest
    assert nodes == [1, 3, 5, 4, 2, 0] * 2


def test_random_search_takes_all_that_may_be_taken_alike():
    nodes = taken(
        lambda d: jnp.array([0, 0, -jnp.inf, 0, 0, -jnp.inf]), 4001, top_share=1.0, rest_share=0.0
    )
    counts = np.bincount(nodes, minlength=6)
    assert counts[[2, 5]].tolist() == [0, 0]
    np.testing.assert_allclose(counts[[0, 1, 3, 4]] / 4000, 0.25, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("refresh", [1, 3, 7])
def test_the_guide_is_asked_every_so_many_steps(refresh):
    asked = []

    def guide(decisions):
        jax.debug.callback(lambda d: asked.append(1), decisions, ordered=True)
        return truth(decisions)

    run(guide, 15, guide_interval=refresh)
    jax.effects_barrier()
    assert len(asked) == -(-14 // refresh)


@pytest.mark.slow
def test_many_runs_at_once_are_those_one_by_one():
    start = jnp.array([1, 0, 1, 0, 1, 0])

    def one(key):
        return guided.minimize(key, cost, start, alike, evaluations=30)

    keys = jax.random.split(jax.random.key(0), 4)
    many, one = jax.jit(jax.vmap(one)), jax.jit(one)
    for k, key in enumerate(keys):
        np.testing.assert_array_equal(many(keys).history[k], one(key).history)


def test_large_int32_costs_are_told_apart():
    def large(decisions):
        return 2**30 - 1 - jnp.sum(decisions, -1).astype(jnp.int32)

    found = minimize(jax.random.key(0), large, jnp.zeros(5, jnp.int32), alike, evaluations=60)
    assert int(found.cost) == 2**30 - 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_share": 0.0}, "top_share is 0.0"),
        ({"top_share": 1.1}, "top_share is 1.1"),
        ({"rest_share": 1.0}, "rest_share is 1.0"),
        ({"patience_share": -0.1}, "patience_share is -0.1"),
        ({"patience_share": float("nan")}, "patience_share is nan"),
        ({"guide_interval": 0}, "guide_interval is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        guided.Settings(**settings)


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="evaluations is 0"):
        run(alike, 0)


def test_a_search_without_moves_is_refused():
    with pytest.raises(ValueError, match="moves is empty"):
        guided.minimize(
            jax.random.key(0), cost, jnp.zeros(6, jnp.int32), alike, evaluations=2, moves=()
        )


def moved(cost, evaluations, **settings):
    """The moves and nodes of each step, of two moves that flip."""
    steps = []

    def move(which, key, decisions, node):
        jax.debug.callback(lambda n: steps.append((which, int(n))), node, ordered=True)
        return guided.flip(key, decisions, node)

    minimize(
        jax.random.key(0),
        cost,
        jnp.zeros(6, jnp.int32),
        lambda decisions: jnp.arange(6.0),
        evaluations=evaluations,
        settings=guided.Settings(**settings),
        moves=(partial(move, 0), partial(move, 1)),
    )
    jax.effects_barrier()
    return steps


def test_while_something_is_better_the_first_move_alone_is_tried():
    """Each flip but the last saves; two steps later there has been nothing better."""
    steps = moved(
        lambda d: -jnp.sum(d, -1), 200, top_share=0.01, rest_share=0.9, patience_share=0.4
    )
    assert steps[:6] == [(0, 5), (0, 4), (0, 3), (0, 2), (0, 1), (0, 0)]
    assert 0.4 < np.mean([which for which, _ in steps[8:]]) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("patience", [0.0, 0.4, 1.5])
def test_other_moves_wait_for_as_long_as_patience_says(patience):
    steps = moved(
        lambda d: jnp.zeros(len(d)), 80, top_share=0.01, rest_share=0.9, patience_share=patience
    )
    waits = math.ceil(patience * 6)
    assert {which for which, _ in steps[:waits]} <= {0}
    assert 0.3 < np.mean([which for which, _ in steps[waits:]]) < 0.7
    assert next(k for k, (which, _) in enumerate(steps) if which) < waits + 8


@pytest.mark.slow
def test_each_move_takes_all_decisions_in_turn():
    """However many moves there are, and however seldom each is made."""
    steps = moved(
        lambda d: jnp.zeros(len(d)), 61, top_share=0.01, rest_share=0.9, patience_share=0.0
    )
    for which in (0, 1):
        nodes = [node for move, node in steps if move == which]
        assert len(nodes) > 18 and nodes == ([5, 4, 3, 2, 1, 0] * 9)[: len(nodes)]


def test_as_much_rest_as_there_can_be_leaves_one_awake():
    nodes = taken(lambda d: jnp.arange(6.0), 13, top_share=0.01, rest_share=1 - 1e-9)
    assert nodes == [5, 4, 3, 2, 1, 0] * 2
