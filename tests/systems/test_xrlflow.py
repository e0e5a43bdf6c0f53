"""Candidates, what is seen of them, what is said, and episodes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from gopt.program.program import trace_program
from gopt.rewriting import RULES, Matcher, Terms, roofline, terms_of_program
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.digests import digest
from gopt.rewriting.ir.operators import Equation, Literal
from gopt.rewriting.ir.to_function import evaluate
from gopt.rewriting.rules.patterns import add, mul, sub
from gopt.rewriting.rules.rule import Rule
from gopt.systems import xrlflow
from gopt.systems.xrlflow.observation import NODE_KINDS
from tests.reference import xrlflow as reference

COST = roofline()
SMALL = xrlflow.Settings(width=8, layers=2, summary=4, hidden=(8,), every=1, horizon=12, episodes=4)
ROOM = xrlflow.Size(nodes=192, edges=256, left=192, slots=16)  # for all programs but the hub
say = jax.jit(xrlflow.apply, static_argnames="settings")
choose = xrlflow.policy(SMALL)


def shapes(*each):
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in each]


def attention(w, x):
    q, k, v = (x @ each for each in w)
    return jax.nn.softmax(q @ k.T) @ v


def layers(w, x):
    for a, b in zip(w[::2], w[1::2], strict=True):
        x = jax.nn.relu(x @ a + x @ b) * 2 + x
    return x


def tangled(w, x):
    """Several results, of which one is read, one an argument, one a constant, and one twice."""
    y = (x @ w[0]) @ w[1]
    values, places = jax.lax.top_k(y, 2)
    return y, x, w[0] @ w[1], y, values + x[:, :2], places


def images(w, x):
    first = jax.lax.conv_general_dilated(
        x, w[0], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    second = jax.lax.conv_general_dilated(
        x, w[1], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.concatenate([jax.nn.relu(first), jax.nn.relu(second)], 3)


def mixed(w, x):
    """A pair of products of which one is known before, inside of what is, and one is not."""
    return jnp.tanh(w[0] @ w[1]) @ (w[0] @ x)


def uneven(w, x):
    """Products of one matrix with matrices of other widths."""
    y = jnp.tanh(x) * 2
    return sum((y @ each).sum(1) for each in w), y @ w[1]


def hub(w, x):
    y = x @ w[0]
    return sum(jnp.tanh(y + k) for k in range(40)) @ w[1]


def deep(w, x):
    """Arrays of six axes."""
    return jnp.tanh(x.reshape(1, 2, 3, 1, 2, 3) + w[0]) * w[0]


SQUARES = shapes(*[(6, 6)] * 4)
PROGRAMS = {
    "attention": (attention, SQUARES[:3], *shapes((5, 6))),
    "layers": (layers, SQUARES, *shapes((3, 6))),
    "tangled": (tangled, SQUARES[:2], *shapes((4, 6))),
    "images": (images, shapes((3, 3, 2, 4), (3, 3, 2, 5)), *shapes((1, 6, 6, 2))),
    "mixed": (mixed, SQUARES[:2], *shapes((6, 6))),
    "uneven": (uneven, shapes((6, 3), (6, 4), (6, 5)), *shapes((4, 6))),
    "no results": (lambda w, x: (), [], *shapes((2,))),
    "hub": (hub, SQUARES[:2], *shapes((6, 6))),
    "deep": (deep, shapes((1, 2, 3, 1, 2, 3)), *shapes((6, 6))),
    "an argument": (lambda w, x: x, [], *shapes((2,))),
    "a constant": (lambda w, x: w[0] + 1, shapes((2,)), *shapes((2,))),
    "one op": (lambda w, x: jnp.tanh(x), [], *shapes(())),
    "nothing in it": (lambda w, x: (x @ w[0]) @ w[1], shapes((6, 6), (6, 0)), *shapes((0, 6))),
    "powers": (lambda w, x: [x := x * w[0] for _ in range(20)][-1], shapes((2,)), *shapes((3, 2))),
    "a chain": (lambda w, x: [x := jnp.tanh(x) for _ in range(50)][-1], [], *shapes((3,))),
}


def program(name, terms=None):
    fn, *args = PROGRAMS[name]
    terms = Terms() if terms is None else terms
    traced = trace_program(fn, *args)
    constant = [k == 0 for k, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    return terms, terms_of_program(terms, traced, constant), traced


def parts(name, reach=SMALL.layers, terms=None):
    terms, roots, _ = program(name, terms)
    order = xrlflow.in_order(terms, roots)
    found = xrlflow.candidates(Matcher(terms), roots, order, 2 * len(order))
    price = TermCosts(terms, COST).term
    return terms, roots, found, xrlflow.observe(terms, roots, order, found, price, reach=reach)


def environment(name, settings=SMALL, seconds=None, **kwargs):
    terms, roots, _ = program(name)
    seconds = seconds or TermCosts(terms, COST).program
    return xrlflow.RewriteEnv(terms, roots, seconds, cost=COST, settings=settings, **kwargs)


def random_params(settings=SMALL, seed=0):
    """All of them at random, also those that are zero, or nearly, in the beginning."""
    params = xrlflow.init(jax.random.key(seed), xrlflow.smallest(), settings=settings)
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    drawn = [np.float32(x + 0.3 * rng.standard_normal(x.shape)) for x in leaves]
    return jax.tree.unflatten(tree, drawn)


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_are_all_that_one_rewrite_makes(name):
    terms, roots, found, _ = parts(name)
    matcher, most = Matcher(terms), 2 * len(terms.live(roots))
    matches = [
        match
        for match in matcher.matches(roots)
        if not any(terms.constant[number] for number in match.terms)
    ]
    expected = {matcher.apply(roots, match) for match in matches} - {None, roots}
    made = {terms.replace(roots, dict(one.by)) for one in found} - {roots}
    assert made == {each for each in expected if len(terms.live(each)) <= most}
    assert len({one.by for one in found}) == len(found)
    none = "deep", "an argument", "a constant", "one op", "a chain", "no results"
    assert bool(found) == (name not in none)


@pytest.mark.parametrize("name", ["attention", "layers", "tangled", "images"])
def test_candidates_have_the_values_of_the_program(name):
    terms, roots, found, _ = parts(name)
    _, *args = PROGRAMS[name]
    rng = np.random.default_rng(0)
    leaves = [np.float32(rng.standard_normal(x.shape)) for x in jax.tree.leaves(args)]
    expected = evaluate(terms, roots, leaves.__getitem__)
    for one in found:
        after = terms.replace(roots, dict(one.by))
        for new, old in zip(evaluate(terms, after, leaves.__getitem__), expected, strict=True):
            np.testing.assert_allclose(new, old, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["attention", "uneven", "layers"])
def test_candidates_do_not_depend_on_what_was_made_before(name):
    plain, roots, first, seen = parts(name)
    others, weights = Terms(), PROGRAMS[name][1]
    # The same parts, in the opposite order.
    last = others.argument(len(weights), PROGRAMS[name][2], constant=False)
    if name == "uneven":
        two = others.add("number", value=Literal(2, np.float32))
        last = others.add("mul", [tanh(others, last), two])
    for k, shape in reversed(list(enumerate(weights))):
        weight = others.argument(k, shape, constant=True)
        others.add("matmul", [last, weight], precision=None, dtype=np.dtype(np.float32))
    count = len(others)
    _, again, second, theirs = parts(name, terms=others)
    assert len(others.live(again)) > len(set(others.live(again)) - set(range(count)))  # shared
    assert [one.rule for one in first] == [one.rule for one in second]
    made = [
        [digest(terms, terms.replace(top, dict(one.by))) for one in found]
        for terms, top, found in ((plain, roots, first), (others, again, second))
    ]
    assert made[0] == made[1] and len(set(made[0])) > 2
    for one, other in zip(seen, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def tanh(terms, x):
    """The term that has this equation."""
    shape = terms.shapes[x]
    traced = trace_program(jnp.tanh, shape)
    return terms.add("equation", [x], equation=Equation(traced.equations[0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "no results"])
@pytest.mark.parametrize("pooling", ["difference", "whole"])
def test_what_is_said_equals_the_reference(name, pooling):
    sizes = "log" if pooling == "difference" else "linear"
    settings = dataclasses.replace(SMALL, pooling=pooling, sizes=sizes, largest=64.0)
    params = random_params(settings)
    terms, roots, found, seen = parts(name)
    price = TermCosts(terms, COST).term
    every = [dict(one.by) for one in found]
    if name == "hub":
        every = every[:5]
    scores, value = reference.said(params, settings, terms, roots, every, price)
    if name == "hub":  # of the others nothing is known by hand, and the value is of all
        found = say(params, seen, settings=settings)
        np.testing.assert_allclose(found.logits[:6], scores, rtol=2e-3, atol=2e-3)
        return
    slots = len(seen.mask)
    said = say(params, xrlflow.pad(seen, ROOM), settings=settings)
    np.testing.assert_allclose(said.logits[:slots], scores, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(said.value, value, rtol=2e-4, atol=2e-4)
    assert (said.logits[slots:] < -1e9).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tangled", "nothing in it"])
def test_padding_changes_nothing_that_is_said(name):
    *_, seen = parts(name)
    params, size = random_params(), xrlflow.size_of(seen)
    expected = say(params, xrlflow.pad(seen, ROOM), settings=SMALL)
    for more in (0, 1):
        padded = xrlflow.pad(seen, xrlflow.Size(*(n + more for n in size)))
        said = say(params, padded, settings=SMALL)
        logits = expected.logits[: len(said.logits)]
        np.testing.assert_allclose(said.logits, logits, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(said.value, expected.value, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "layers", "tangled", "images", "hub"])
def test_patches_say_what_whole_candidates_do(name):
    params = random_params()
    *_, patches = parts(name)
    *_, whole = parts(name, reach=None)
    assert len(patches.kind) <= len(whole.kind)
    if name == "hub":
        assert len(patches.kind) < len(whole.kind) / 5
    # What is heard less far is not the same.
    *_, near = parts(name, reach=0)
    every = patches, near, whole
    if name != "hub":
        every = (xrlflow.pad(seen, ROOM) for seen in every)
    ours, less, theirs = (say(params, seen, settings=SMALL) for seen in every)
    np.testing.assert_allclose(ours.logits, theirs.logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-4, atol=1e-4)
    if len(near.kind) < len(patches.kind):
        assert np.abs(less.logits - theirs.logits).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "layers", "hub"])
def test_probabilities_follow_candidates_wherever_they_are(name):
    terms, roots, found, _ = parts(name)
    order, price = xrlflow.in_order(terms, roots), TermCosts(terms, COST).term
    places = np.random.default_rng(0).permutation(len(found))
    both = [
        xrlflow.observe(terms, roots, order, one, price, reach=SMALL.layers)
        for one in (found, [found[k] for k in places])
    ]
    params = random_params()
    (ours, value), (theirs, same) = (choose(params, seen) for seen in both)
    # But for how a product of matrices rounds in another row.
    np.testing.assert_allclose(theirs[1:], ours[1:][places], rtol=1e-5)
    np.testing.assert_allclose([theirs[0], same], [ours[0], value], rtol=1e-5)
    assert np.ptp(ours) > 1e-3
    # A flat head tells slots apart.
    flat = dataclasses.replace(SMALL, head="flat", slots=len(found) + 1)
    tell, params = xrlflow.policy(flat), random_params(flat)
    ours, theirs = (tell(params, seen)[0] for seen in both)
    assert np.abs(theirs[1:] - ours[1:][places]).max() > 1e-3


@pytest.mark.slow
def test_a_flat_head_chooses_among_its_slots_only():
    flat = dataclasses.replace(SMALL, head="flat", slots=3)
    *_, seen = parts("attention")
    chances, _ = xrlflow.policy(flat)(random_params(flat), seen)
    assert len(chances) > 3 and (np.asarray(chances[:3]) > 0).all()
    assert np.asarray(chances[3:]).sum() == 0
    wide = dataclasses.replace(flat, slots=len(chances) + 20)
    chances, _ = xrlflow.policy(wide)(random_params(wide), seen)
    assert (np.asarray(chances) > 0).all()


def test_of_nothing_there_is_something_to_say():
    *_, seen = parts("no results")
    said = say(random_params(), seen, settings=SMALL)
    assert np.isfinite(said.logits).all() and np.isfinite(said.value)


def test_kinds_are_told_apart():
    assert len(NODE_KINDS) - len(set(NODE_KINDS)) < 10  # a primitive may be named as an operator
    *_, seen = parts("tangled")
    names = {NODE_KINDS[k] for k in seen.kind[:-1]}
    assert {"argument", "constant", "matmul", "top_k", "result"} <= names


@pytest.mark.filterwarnings("error")
def test_the_checker_of_gymnasium_passes():
    check_env(environment("layers"), skip_render_check=True)


def test_rewards_add_up_to_what_was_gained():
    env = environment("layers")
    params = xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=SMALL)
    for seed in range(3):
        played = xrlflow.play(env, choose, params, np.random.default_rng(seed))
        gained = 100 * (env.first - played.seconds[-1]) / env.first
        np.testing.assert_allclose(played.reward.sum(), gained, rtol=1e-4, atol=1e-4)
        assert len(played.rules) == len(played.action) - (played.action[-1] == 0)


def test_programs_are_measured_now_and_then():
    settings = dataclasses.replace(SMALL, every=3, horizon=7, bonus=0.5)
    asked = []

    def seconds(roots):
        asked.append(roots)
        return 8.0 if len(asked) == 1 else 8.0 - len(asked)

    env = environment("hub", settings, seconds)
    rewards = []
    while True:
        _, reward, is_terminated, is_truncated, info = env.step(1)
        rewards.append(reward)
        assert math.isnan(info["seconds"]) == (reward == 0.5)
        if is_terminated or is_truncated:
            break
    assert is_truncated and not is_terminated
    # 8 s, then 6, 5 and 4.
    assert rewards == [0.5, 0.5, 25.0, 0.5, 0.5, 12.5, 12.5]
    with pytest.raises(ValueError, match="the episode is over"):
        env.step(0)


def test_what_cannot_be_measured_is_skipped():
    answers = iter([10.0, math.inf, math.nan, 5.0])
    env = environment("hub", seconds=lambda roots: next(answers))
    rewards = [env.step(1)[1] for _ in range(3)]
    assert rewards == [0, 0, 50]
    with pytest.raises(ValueError, match="takes inf s"):
        environment("layers", seconds=lambda roots: math.inf)
    with pytest.raises(ValueError, match=r"takes 0.0 s"):
        environment("an argument")


def test_actions_that_are_not_there_are_refused():
    env = environment("attention")
    seen, info = env.reset()
    there = int(seen["mask"].sum())
    assert there == len(info["rules"]) + 1
    for action in (-1, there, len(seen["mask"]) + 5):
        with pytest.raises(ValueError, match=f"expected 0 to {there - 1}"):
            env.step(action)
    _, _, is_terminated, _, _ = env.step(0)
    assert is_terminated


def test_slots_grow_and_stay_large():
    same = add(mul("x", "y"), sub("x", "x"))  # and there is one more to be turned round
    rules = (
        Rule("more", (mul("x", "y"),), (same,)),
        Rule("round", (add("x", "y"),), (add("y", "x"),)),
    )
    env = environment("powers", dataclasses.replace(SMALL, horizon=20), rules=rules)
    sizes, rng = [env.size], np.random.default_rng(0)
    seen, info = env.reset()
    for _ in range(20):
        more = [k for k, rule in enumerate(info["rules"], 1) if rule == "more"]
        seen, _, _, _, info = env.step(rng.choice(more))
        assert env.observation_space.contains(seen)
        assert env.action_space.n == len(seen["mask"]) == env.size.slots
        assert len(info["rules"]) + 1 == seen["mask"].sum()
        assert all(now >= then for now, then in zip(env.size, sizes[-1], strict=True))
        sizes.append(env.size)
    assert len({size.slots for size in sizes}) > 1 and len(set(sizes)) > 2
    rng = env.action_space.np_random
    env.make_room(xrlflow.Size(slots=200))
    assert env.action_space.n == 256 and env.action_space.np_random is rng
    drawn = {int(env.action_space.sample()) for _ in range(200)}
    assert drawn <= set(range(len(info["rules"]) + 1)) and len(drawn) > 5
    assert env.reset()[0]["mask"].shape == (env.size.slots,)
    env.make_room(xrlflow.Size(slots=1000))
    assert env.action_space.n == 1024 and len(env.reset()[0]["mask"]) == 1024


def test_episodes_are_the_same_for_a_seed_whatever_was_played_before():
    env, params = environment("layers"), random_params()
    for seed in range(4):
        xrlflow.play(env, choose, params, np.random.default_rng(seed))
    after = xrlflow.play(env, choose, params, np.random.default_rng(7))
    fresh = xrlflow.play(environment("layers"), choose, params, np.random.default_rng(7))
    np.testing.assert_array_equal(after.action, fresh.action)
    assert after.rules == fresh.rules and len(set(after.rules)) > 1
    np.testing.assert_allclose(after.reward, fresh.reward)


def test_an_episode_goes_on_from_where_another_was():
    settings, params = dataclasses.replace(SMALL, every=3), random_params()
    env = environment("layers", settings)
    whole = xrlflow.play(env, xrlflow.uniform, None, np.random.default_rng(3))
    begin = whole.action[: (len(whole.action) - 1) // 3 * 3]
    assert len(begin) >= 3
    more = xrlflow.play(env, choose, params, np.random.default_rng(4), begin=begin)
    np.testing.assert_array_equal(more.seen[0].change, whole.seen[len(begin)].change)
    assert len(begin) + len(more.action) <= SMALL.horizon
    gained = 100 * (whole.seconds[len(begin) - 1] - more.seconds[-1]) / env.first
    bonus = SMALL.bonus * np.isnan(more.seconds).sum()
    np.testing.assert_allclose(more.reward.sum(), gained + bonus, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="expected actions that do not end an episode"):
        xrlflow.play(env, choose, params, np.random.default_rng(4), begin=[1, xrlflow.NOTHING])


def test_nothing_but_candidates_is_ever_chosen():
    env = environment("attention")
    env.make_room(xrlflow.Size(slots=1000))
    for tell in (choose, xrlflow.uniform):
        for seed in range(3):
            params, rng = random_params(seed=seed), np.random.default_rng(seed)
            played = xrlflow.play(env, tell, params, rng)
            for action, seen in zip(played.action, played.seen, strict=True):
                chances, _ = tell(params, xrlflow.pad(seen, env.size))
                assert action < len(seen.mask) and chances[action] > 0
                assert len(chances) == 1024 and not np.asarray(chances)[len(seen.mask) :].any()


def test_what_could_not_be_measured_is_worth_getting_rid_of():
    def cost(operator, attributes, inputs, constant):
        return math.inf if operator == "mul" else COST(operator, attributes, inputs, constant)

    terms, roots, _ = program("tangled")
    order, price = xrlflow.in_order(terms, roots), TermCosts(terms, COST).term
    found = xrlflow.candidates(Matcher(terms), roots, order, 2 * len(order))
    gone = found[0].by[0][0]
    seen = xrlflow.observe(
        terms, roots, order, found, lambda k: math.inf if k == gone else price(k), reach=1
    )
    assert seen.change[1] == pytest.approx(-1, abs=1e-3) and np.isfinite(seen.change).all()
    search = xrlflow.agent(random_params(), SMALL)
    terms, roots, _ = program("powers")
    found = search(terms, roots, cost, RULES)
    assert found.roots == roots and "inf" in found.stop_reason


def test_the_agent_is_a_search():
    terms, roots, _ = program("layers")
    params = xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=SMALL)
    found = xrlflow.agent(params, SMALL, episodes=2)(terms, roots, COST, RULES)
    prices = TermCosts(terms, COST)
    assert found.cost == prices.program(found.roots) < prices.program(roots)
    assert len(found.rewrites) >= 1 and found.stop_reason == "2 episodes are played"
    again = xrlflow.agent(params, SMALL, episodes=2)(terms, roots, COST, RULES)
    assert again == found
    terms, roots, _ = program("an argument")
    found = xrlflow.agent(params, SMALL)(terms, roots, COST, RULES)
    assert found.roots == roots and found.cost == 0
    with pytest.raises(ValueError, match="episodes is 0"):
        xrlflow.agent(params, SMALL, episodes=0)


def test_the_agent_that_ships_makes_programs_cheaper():
    terms, roots, _ = program("layers")
    found = xrlflow.agent(*xrlflow.load(), episodes=1)(terms, roots, COST, RULES)
    assert found.cost < TermCosts(terms, COST).program(roots) and found.rewrites
