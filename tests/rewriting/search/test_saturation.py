"""Saturation finds the cheapest of all programs that rules lead to."""

import itertools
import os
import signal
import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.rewriting.ir.operators import Literal
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram
from gopt.rewriting.rules.matching import Matcher
from gopt.rewriting.rules.patterns import apply, mul, relu
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.saturation import Limits, saturate, saturating, saturation
from gopt.rewriting.search.saturation.egraph import EGraph
from gopt.rewriting.search.saturation.extraction import choose
from gopt.rewriting.search.saturation.interruptible import interruptible
from gopt.rewriting.search.taso import backtracking
from tests.reference import rewriting as reference
from tests.rewriting.search.test_taso import (
    ATTENTION,
    COST,
    THREE,
    attention,
    kernels,
    program,
    random,
    three,
    workload,
)
from tests.workloads.tiny import compiled


def sums(w, x):
    return (x @ w[0] + x) + x @ w[1], x @ w[0]


def views(w, x):
    parts = jnp.concatenate([x @ w[0], x @ w[1]], 1)
    return parts[:, :6][:, 2:] * 2, jnp.transpose(jnp.transpose(x @ w[2])) * 3


def entangled(w, x):
    """Of three products that could be one, two need each other."""
    return x @ jnp.sin(x @ w[0]) + x @ (x + 1)


SQUARE = [random(6, 6, seed=k) for k in range(4)], random(6, 6, seed=4)


def joined_before(w, x):
    """Weights that the program itself joins, in whole and in part."""
    both, k = jnp.concatenate(w[:2], 1), jnp.concatenate([w[2], w[3]], 1)
    return x @ both[:, :6], x @ both[:, 6:], x @ k


CASES = {
    "attention": (attention, *ATTENTION),
    "three": (three, *THREE),
    "sums": (sums, *SQUARE),
    "views": (views, *SQUARE),
    "entangled": (entangled, *SQUARE),
    "joined before": (joined_before, *SQUARE),
    "nothing": (lambda w, x: x, *SQUARE),
    "one op": (lambda w, x: jnp.sin(x), *SQUARE),
    "constant": (lambda w, x: w[0] @ w[1], *SQUARE),
}


def random_cost(seed):
    """Costs that suit no rule in particular."""
    known, rng = {}, np.random.default_rng(seed)

    def cost(operator, attributes, shapes, constant):
        if operator in ("reshape", "slice", "argument", "number"):
            return 0.0
        key = operator, tuple(shape.shape for shape in shapes)
        return known.setdefault(key, float(rng.integers(1, 9)) * 1e-6)

    return cost


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("name", CASES)
def test_the_cheapest_of_all_programs_is_found(name, seed):
    cost = COST if seed is None else random_cost(seed)
    few = [rule for rule in RULES if "elements" not in rule.name]
    terms, roots, whole = program(*CASES[name])
    found = saturation(terms, roots, cost, few, max_subset=3)
    assert found.stop_reason.startswith("nothing is left to be rewritten")
    least = reference.cheapest(*program(*CASES[name])[:2], few, cost)
    # Programs that no single way of rewrites leads to are in it as well.
    assert found.cost <= least + 1e-12
    assert found.cost == pytest.approx(reference.cost(terms, found.roots, cost), rel=1e-9)
    if seed is None:
        assert found.cost == pytest.approx(least, rel=1e-9)
    fn, *args = CASES[name]
    ours = jax.tree.leaves(RewrittenProgram(terms, found.roots, whole, (0,))(*args))
    for one, other in zip(ours, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "resnext", "rnnlm", "deeprank"])
def test_workloads_keep_their_values_and_cost_no_more_than_by_backtracking(name):
    fn, variables, *inputs = workload(name)
    terms, roots, whole = program(fn, variables, *inputs)
    found = saturation(terms, roots, COST, max_terms=10_000)
    other = backtracking(*program(fn, variables, *inputs)[:2], COST)
    assert found.cost <= other.cost * (1 + 1e-9)
    apply, *_ = compiled(name)
    back = RewrittenProgram(terms, found.roots, whole, (0,))
    run = jax.jit(back.run, compiler_options={"xla_backend_optimization_level": 0})
    ours = jax.tree.leaves(run(back.fold(variables), *inputs))
    for one, theirs in zip(ours, jax.tree.leaves(apply(variables, *inputs)), strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(one / scale, theirs / scale, atol=2e-5)


def test_what_is_equal_is_in_one_class():
    """If x = y, then f(x) = f(y), and so for what reads these."""
    terms = Terms()
    shape = jax.ShapeDtypeStruct((3, 3), np.float32)
    x, y, z = (terms.argument(k, shape, constant=False) for k in range(3))
    inner = [terms.add("relu", [k]) for k in (x, y, z)]
    outer = [terms.add("sub", [k, z]) for k in inner]
    swapped = [terms.add("mul", [x, z]), terms.add("mul", [z, y])]
    graph = EGraph(terms, RULES)
    graph.add(range(len(terms)))
    assert all(k == c for k, c in graph.classes().items())
    graph.add([], [(x, y)])
    classes = graph.classes()
    assert classes[inner[0]] == classes[inner[1]] == inner[0] != classes[inner[2]]
    assert classes[outer[0]] == classes[outer[1]] == outer[0] != classes[outer[2]]
    assert classes[swapped[0]] == classes[swapped[1]] == swapped[0]


def test_matches_in_a_program_alone_are_those_of_backtracking():
    """Before anything is equal; but for what is constant, which costs nothing in any order."""
    for case in CASES.values():
        terms, roots, _ = program(*case)
        graph = EGraph(terms, RULES)
        graph.add(terms.live(roots))
        names = (*reference.PAIRS, *reference.SINGLE)
        graph.look()
        found = {
            (one.rule.name, frozenset(one.terms))
            for one in graph.matches()
            if one.rule.name in names
        }
        expected = {
            (name, numbers)
            for name, numbers in reference.matches(terms, roots)
            if not any(terms.constant[k] for k in numbers)
        }
        # Here two that need each other are a match: what is taken in the end has no cycle.
        assert expected <= found
        assert found == expected or case[0] is entangled
        graph.look()
        assert list(graph.matches()) == []  # none of them is told twice


def test_several_are_joined_in_one_order():
    def fn(w, x):
        return [jnp.tanh(x @ each) for each in w]

    terms, roots, _ = program(fn, *SQUARE)
    rules = [rule for rule in RULES if rule.name.startswith("xa, xb")]
    saturated = saturate(terms, roots, rules, Limits(max_subset=4))
    joined = {terms[k].inputs for k in saturated.graph.numbers if terms[k].operator == "concat"}
    weights = sorted(k for k in terms.live(roots) if terms.constant[k])
    expected = itertools.chain.from_iterable(
        itertools.combinations(weights, n) for n in range(2, len(weights) + 1)
    )
    assert joined == set(expected)
    terms, roots, _ = program(fn, *SQUARE)
    saturated = saturate(terms, roots, rules)
    joined = {terms[k].inputs for k in saturated.graph.numbers if terms[k].operator == "concat"}
    a, b, c, d = weights
    assert joined == {*itertools.combinations(weights, 2), (a, b, c), (a, b, c, d)}


def random_choices(seed):
    """Classes whose first terms read those before; others read any, so that there are cycles."""
    rng = np.random.default_rng(seed)
    choices, number = {}, itertools.count(100)
    for c in range(6):
        before = tuple(int(i) for i in range(c) if rng.random() < 0.5)
        choices[c] = {c: before}
        for _ in range(rng.integers(0, 3)):
            read = tuple(i for i in range(6) if i != c and rng.random() < 0.3)
            choices[c][next(number)] = read
    costs = {k: int(rng.integers(0, 10)) for members in choices.values() for k in members}
    return choices, {5, int(rng.integers(0, 6))}, costs


@pytest.mark.parametrize("seed", range(150))
def test_the_choice_is_the_best_of_all(seed):
    choices, roots, costs = random_choices(seed)
    solved, gap = choose(choices, roots, costs)
    assert gap <= 1e-6
    assert roots <= solved.keys()
    assert all(i in solved for c, k in solved.items() for i in choices[c][k])
    least = reference.choices_of_least_cost(choices, roots, costs)
    assert (
        reference.choices_of_least_cost(
            {c: {k: choices[c][k]} for c, k in solved.items()}, roots, costs
        )
        == least
    )


def needy(w, x):
    return x @ w[0], x @ jnp.sin(x @ w[0]), x @ (x + 1), x @ (x + 2)


def kernels_of_two_sizes(w, x):
    def conv(kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    return [conv(kernel) for kernel in w]


@pytest.mark.parametrize(
    "case",
    [
        (joined_before, *SQUARE),
        (needy, *SQUARE),
        (
            kernels_of_two_sizes,
            [random(1 + 2 * (k % 2), 1 + 2 * (k % 2), 3, 2, seed=k) for k in range(6)],
            random(1, 5, 5, 3, seed=6),
        ),
    ],
    ids=["joined before", "needy", "kernels"],
)
def test_all_that_can_be_one_is_joined(case):
    found = saturation(*program(*case)[:2], COST)
    other = backtracking(*program(*case)[:2], COST)
    assert found.cost <= other.cost * (1 + 1e-9)


def grid(w, x):
    """Products of some rows with some matrices."""
    return [jnp.tanh(row[None] @ each) for row in x[:3] for each in w]


def recurrent(w, x):
    """Rows that are known before, and states that need one another."""
    state = x[:1]
    for row in x:
        state = jnp.tanh(row[None] @ w[0] + state @ w[1]) * (row[None] @ w[2] + state @ w[3])
    return state


@pytest.mark.parametrize(("fn", "products"), [(grid, 1), (recurrent, 6)])
def test_rows_and_matrices_are_joined_at_once(fn, products):
    terms, roots, whole = program(fn, *SQUARE)
    found = saturation(terms, roots, COST)
    assert "proven" not in found.stop_reason
    assert kernels(terms, found.roots) == products  # of six states the first is a row
    expected = jax.tree.leaves(fn(*SQUARE))
    ours = jax.tree.leaves(RewrittenProgram(terms, found.roots, whole, (0,))(*SQUARE))
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_sum_that_is_read_anyhow_is_not_added_up_in_other_orders(is_read):
    def fn(w, x):
        inner = x + w
        return (inner + jnp.sin(x), *[jnp.cos(inner)] * is_read)

    terms, roots, _ = program(fn, random(3), random(3, seed=1))
    names = [one.rule.name for one in Matcher(terms).matches(roots)]
    assert ("(x + y) + z = x + (y + z)" in names) != is_read
    before = len(terms)
    saturated = saturate(terms, roots)
    assert (len(terms) == before) == is_read
    assert (
        "sums and products that the program reads elsewhere" in saturated.stop_reason
    ) == is_read


@pytest.mark.parametrize(
    "sizes", [(1, 3, 3), (3, 3, 1), (1, 3, 1, 3), (1, 1, 3, 3), (3, 1, 3, 5), (5, 1), (3, 5, 1)]
)
def test_kernels_of_any_sizes_become_one(sizes):
    """Where all that a convolution costs is to be called."""

    def cost(operator, attributes, shapes, constant):
        return float(operator in ("conv", "matmul"))

    kernels_of = [random(n, n, 3, 2, seed=k) for k, n in enumerate(sizes)]
    image = random(1, 5, 5, 3, seed=9)

    def fn(w, x):
        return [jax.nn.relu(each) for each in kernels_of_two_sizes(w, x)]

    terms, roots, whole = program(fn, kernels_of, image)
    found = saturation(terms, roots, cost)
    assert found.cost == pytest.approx(1.0, abs=1e-6)
    ours = RewrittenProgram(terms, found.roots, whole, (0,))(kernels_of, image)
    for one, other in zip(ours, fn(kernels_of, image), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_terms_of_another_search_are_found_again():
    terms, roots, _ = program(sums, *SQUARE)
    once, again = (saturation(terms, roots, COST) for _ in range(2))
    assert again.cost == once.cost < reference.cost(terms, roots, COST)


def test_rules_may_have_any_patterns():
    """Two patterns that are no join, and a number."""
    terms, roots, _ = program(lambda w, x: (jax.nn.relu(x), (x - w) * 1.0), random(3), random(3))
    one = Literal(1.0, np.float32)
    rules = [
        Rule("both", (relu("x"), apply("sub", "x", "y")), ("x", "y")),
        Rule("times 1", (mul("x", apply("number", value=one)),), ("x",)),
    ]
    found = saturation(terms, roots, COST, rules)
    assert terms[found.roots[0]].operator == terms[found.roots[1]].operator == "argument"


def test_what_has_no_cost_is_not_chosen():
    def cost(operator, attributes, shapes, constant):
        return np.inf if operator == "matmul" and shapes[1].shape[-1] > 6 else 1.0

    terms, roots, _ = program(attention, *ATTENTION)
    found = saturation(terms, roots, cost)
    assert found.cost == reference.cost(terms, found.roots, cost)
    assert found.cost <= reference.cost(terms, roots, cost) < np.inf
    choices = {0: {0: (1,)}, 1: {1: (), 9: ()}}
    assert choose(choices, {0}, {0: 1.0, 1: np.inf, 9: 2.0})[0] == {0: 0, 1: 9}
    # What costs too much to be needed does not hide differences.
    choices[0][5] = ()
    assert choose(choices, {0}, {0: 1.0, 1: 3.0, 9: 2.0, 5: 1e9})[0] == {0: 0, 1: 9}


def test_a_limit_is_told_and_the_best_so_far_returned():
    terms, roots, _ = program(sums, *SQUARE)
    before = reference.cost(terms, roots, COST)
    every = saturation(*program(sums, *SQUARE)[:2], COST)
    most = len(terms.live(roots)) + 6
    few = saturation(terms, roots, COST, max_terms=most)
    assert few.stop_reason == f"there are {few.num_visited} terms"
    assert most <= few.num_visited < most + 6
    assert every.cost <= few.cost <= before
    seldom = saturation(*program(sums, *SQUARE)[:2], COST, max_applications=1)
    assert seldom.stop_reason.endswith("rules that were applied 1 times")
    assert every.cost <= seldom.cost <= before
    none = saturation(terms, roots, COST, rounds=0)
    assert (none.roots, none.rewrites, none.stop_reason) == (roots, (), "there were 0 rounds")
    # A solver that may do nothing returns the program that there was.
    lazy = saturation(*program(sums, *SQUARE)[:2], COST, seconds=0.0)
    assert lazy.cost <= before
    assert "; it is not proven that none of them costs up to 100.0% less" in lazy.stop_reason
    assert lazy.stop_reason.endswith("; cut after 0 s, so that the result is not reproducible")


class Clock:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self):
        self.reads = -1

    def monotonic(self):
        self.reads += 1
        return float(self.reads)


def test_the_best_so_far_is_returned_when_time_runs_out(monkeypatch):
    """After any number of steps, each a second; with more time, the result is no worse."""
    case = recurrent, *SQUARE
    before = reference.cost(*program(*case)[:2], COST)
    every = saturation(*program(*case)[:2], COST)
    assert "reproducible" not in every.stop_reason
    costs = []
    for seconds in (0, 2, 100, 200, 400, 800, 100_000):
        monkeypatch.setattr(saturating, "time", Clock())
        terms, roots, whole = program(*case)
        found = saturation(terms, roots, COST, seconds=seconds)
        costs.append(found.cost)
        assert found.cost == pytest.approx(reference.cost(terms, found.roots, COST), rel=1e-9)
        is_cut = found.stop_reason.endswith(
            f"; cut after {seconds} s, so that the result is not reproducible"
        )
        assert is_cut == (seconds < 10_000)
        ours = RewrittenProgram(terms, found.roots, whole, (0,))(*SQUARE)
        np.testing.assert_allclose(ours, recurrent(*SQUARE), rtol=1e-4, atol=1e-4)
    assert costs[0] == costs[1] == pytest.approx(before)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == every.cost
    assert len(set(costs)) > 2  # programs of a saturation that was cut are between


def test_a_solver_without_time_returns_the_better_of_a_greedy_choice_and_the_program():
    """Sharing 0 costs 5; a greedy choice counts it twice, and 3 + 4 is less than 2 * 5."""
    choices = {0: {0: ()}, 1: {1: (0,), 11: ()}, 2: {2: (0,), 12: ()}, 3: {3: (1, 2)}}
    costs = {0: 5.0, 1: 0.0, 2: 0.0, 11: 3.0, 12: 4.0, 3: 1.0}
    shared = {0: 0, 1: 1, 2: 2, 3: 3}
    assert choose(choices, {3}, costs, 0.0) == (shared, 1.0)
    assert choose(choices, {3}, costs)[0] == shared
    costs[0] = 8.0
    assert choose(choices, {3}, costs, 0.0) == ({1: 11, 2: 12, 3: 3}, 1.0)
    costs[11] = costs[12] = np.inf
    assert choose(choices, {3}, costs, 0.0) == (shared, 1.0)


def test_an_interrupt_ends_a_call_at_once_and_errors_are_passed_on():
    begin = time.monotonic()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(partial(time.sleep, 5))
    assert time.monotonic() - begin < 2
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0)


def test_terms_of_other_programs_count_as_new_where_they_are_made():
    terms, roots, _ = program(sums, *SQUARE)
    most = len(terms.live(roots)) + 6
    first = saturation(terms, roots, COST, max_terms=most)
    saturation(terms, roots, COST)  # after which all terms are there
    assert saturation(terms, roots, COST, max_terms=most) == first


@pytest.mark.parametrize("name", Limits._fields)
@pytest.mark.parametrize("limit", [-1, np.nan])
def test_negative_limits_raise(name, limit):
    terms, roots, _ = program(three, *THREE)
    with pytest.raises(ValueError, match=f"{name} is {limit}: expected 0 at least"):
        saturate(terms, roots, RULES, Limits(**{name: limit}))
    with pytest.raises(ValueError, match=f"{name} is {limit}: expected 0 at least"):
        saturation(terms, roots, COST, **{name: limit})


def test_rewriting_searches_by_it():
    search = partial(saturation, max_terms=1000)
    result = gopt.rewrite(three, *THREE, constant_argnums=0, search=search, repeats=2)
    report = result.report
    assert report.stop_reason.startswith("nothing is left to be rewritten")
    assert set(report.rules) == {"(xa)b = x(ab)", "xa + xb = x(a + b)"}
    assert report.difference < 1e-5
