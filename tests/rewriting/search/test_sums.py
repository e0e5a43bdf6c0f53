"""Saturation makes the orders of sums that rules can use, and no others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.rewriting.ir.to_function import RewrittenProgram
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.saturation import saturate, saturation
from gopt.rewriting.search.saturation.needs import is_order, needs_of
from gopt.rewriting.search.taso import backtracking
from tests.rewriting.search.test_taso import COST, kernels, program, random


def check(fn, *args):
    """Return the terms and the roots of the cheapest program, after its values are compared."""
    terms, roots, whole = program(fn, *args)
    found = saturation(terms, roots, COST)
    assert "reproducible" not in found.stop_reason
    assert found.cost <= backtracking(*program(fn, *args)[:2], COST).cost * (1 + 1e-9)
    ours = jax.tree.leaves(RewrittenProgram(terms, found.roots, whole, (0,))(*args))
    for one, other in zip(ours, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
    return terms, found


def matrices(count, *shape):
    return [random(*shape, seed=k) for k in range(count)]


@pytest.mark.parametrize("count", [5, 12])
@pytest.mark.parametrize("begin", ["first", "zero"])
def test_products_of_one_input_become_one_product(count, begin):
    """y = x a + x b + ... = x (a + b + ...), whose matrix is known before."""

    def fn(w, x):
        y = jnp.zeros((8, 16)) if begin == "zero" else x @ w[0]
        for each in w[begin == "first" :]:
            y = y + x @ each
        return y

    terms, found = check(fn, matrices(count, 16, 16), random(8, 16, seed=99))
    assert kernels(terms, found.roots) == 1
    assert kernels(terms, found.roots, "add") == (begin == "zero")
    assert "rules that were applied" not in found.stop_reason
    assert found.num_visited < 1000  # 12 parts have 3**12 partial sums and orders of these


def test_matrices_that_are_not_known_are_added_first():
    def fn(w, x):
        return sum((x[0] @ each for each in x[1:]), start=jnp.zeros((64, 16)))

    terms, found = check(fn, [], [random(64, 16), *matrices(7, 16, 16)])
    assert kernels(terms, found.roots) == 1
    assert kernels(terms, found.roots, "add") == 7


def test_products_with_one_matrix_become_one_product():
    def fn(w, x):
        return sum((each @ w for each in x), start=jnp.zeros((8, 16)))

    terms, found = check(fn, random(16, 16, seed=9), matrices(7, 8, 16))
    assert kernels(terms, found.roots) == 1


def test_convolutions_of_one_image_become_one_convolution():
    def fn(w, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        each = (
            jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers) for k in w
        )
        return sum(each, start=jnp.zeros((1, 5, 5, 2)))

    terms, found = check(fn, matrices(8, 3, 3, 2, 2), random(1, 5, 5, 2, seed=9))
    assert kernels(terms, found.roots, "conv") == 1


def test_products_of_different_inputs_become_one_product():
    def fn(w, x):
        return sum((a @ b for a, b in zip(x, w, strict=True)), start=jnp.zeros((8, 16)))

    terms, found = check(fn, matrices(12, 16, 16), matrices(12, 8, 16))
    assert kernels(terms, found.roots) == 1  # [x|y|...] [a|b|...]
    assert found.num_visited < 300


def test_parts_far_from_each_other_are_brought_together():
    def fn(w, x):
        a, b, c, d = w
        return x @ a + jnp.sin(x) + jnp.cos(x) @ b + jnp.exp(x) + x @ c + jnp.cos(x) @ d

    terms, found = check(fn, matrices(4, 16, 16), random(8, 16, seed=9))
    assert kernels(terms, found.roots) <= 2
    assert kernels(terms, found.roots, "add") <= 3


def test_a_convolution_meets_its_image():
    """Conv(x, a) + y + x = conv(x, a + 1) + y."""

    def fn(w, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        made = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        return made + jnp.sin(x) + x

    terms, found = check(fn, random(3, 3, 2, 2), random(1, 5, 5, 2, seed=9))
    assert kernels(terms, found.roots, "add") == 1


@pytest.mark.parametrize("operator", [jnp.add, jnp.multiply])
def test_orders_that_no_rule_needs_are_not_made(operator):
    def fn(w, x):
        y = x[0]
        for each in x[1:]:
            y = operator(y, each)
        return y

    terms, roots, _ = program(fn, [], matrices(40, 4, 4))
    before = len(terms)
    saturated = saturate(terms, roots)
    assert saturated.stop_reason == "nothing is left to be rewritten"
    assert len(terms) == before


def repeated(w, x):
    return x + x + x + x + x + x + x + x


def pairs(w, x):
    return (x + jnp.sin(x)) + (jnp.sin(x) + x)


def shared(w, x):
    a, b, c = jnp.sin(x), jnp.cos(x), jnp.exp(x)
    return (a + c) + b, jnp.tanh(a + b)


def known(w, x):
    return ((x + w[0]) + jnp.sin(x)) + w[1]


def narrow(w, x):
    rows = jnp.sin(x[:1]), jnp.cos(x[:1])
    return (x + rows[0]) + rows[1]


@pytest.mark.parametrize(("fn", "adds"), [(repeated, 3), (pairs, 2), (shared, 2), (known, 2)])
def test_equal_shared_and_known_parts_are_added_once(fn, adds):
    terms, found = check(fn, matrices(2, 4, 4), random(4, 4, seed=9))
    assert kernels(terms, found.roots, "add") == adds


def test_small_parts_are_added_before_they_are_broadcast():
    terms, found = check(narrow, [], random(64, 64, seed=9))
    shapes = [terms.shape(k) for k in terms.live(found.roots) if terms[k].operator == "add"]
    assert sorted(shapes) == [(1, 64), (64, 64)]


def test_products_of_elements_with_a_common_factor_are_one():
    """u v w + w z u = (u w) (v + z)."""

    def fn(w, x):
        a, b, c, d = jnp.sin(x), jnp.cos(x), jnp.exp(x), jnp.tanh(x)
        return (a * b) * c + (c * d) * a

    terms, found = check(fn, [], random(64, 64, seed=9))
    assert kernels(terms, found.roots, "mul") == 2
    assert kernels(terms, found.roots, "add") == 1


def test_a_product_read_as_a_sum_is_opened():
    """x (a + b) + y a = x b + (x + y) a, where x b is known."""

    def fn(w, x):
        return w[0] @ (x + w[1]) + jnp.ones((64, 64)) @ x

    terms, found = check(fn, matrices(2, 64, 64), random(64, 64, seed=9))
    assert kernels(terms, found.roots) == 1


def test_products_in_a_row_are_grouped_in_any_order():
    def fn(w, x):
        for each in w:
            x = x @ each
        return x

    terms, found = check(fn, matrices(12, 8, 8), random(8, 8, seed=99))
    assert kernels(terms, found.roots) == 1
    assert found.num_visited < 5000


def test_needs_of_the_rules():
    """One pattern of a sum, or a known variable; nothing of variables alone."""
    needs = {need.rule.name: need for need in needs_of(RULES, "add")}
    assert needs["xa + xb = x(a + b)"].is_symmetric
    assert "x" in needs["xa + xb = x(a + b)"].shared
    assert "a" in needs["xa + ya = (x + y)a"].shared
    assert {"x", "a"}.isdisjoint(needs["xa + yb = [x|y][a|b]"].shared)
    assert not needs["conv(x, a) + x = conv(x, a + identity), of 3"].is_symmetric
    assert "xa + xb = x(a + b), back" not in needs
    orders = {rule.name for rule in RULES if is_order(rule)}
    assert len(orders) == 4
    assert orders.isdisjoint(needs)


def test_limits_of_terms_keep_the_best_so_far():
    """The more terms, the cheaper; each result is at least as cheap as the program."""

    def fn(w, x):
        return sum((x @ each for each in w[1:]), start=x @ w[0])

    args = matrices(6, 16, 16), random(8, 16, seed=9)
    costs = []
    for most in (0, 30, 60, 90, 120, 150, 180, 15_000):
        terms, roots, _ = program(fn, *args)
        found = saturation(terms, roots, COST, max_terms=most)
        costs.append(found.cost)
        assert ("there are" in found.stop_reason) == (most < 15_000)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]
