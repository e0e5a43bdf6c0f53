"""Decisions as names for `jax.checkpoint`; JAX saves what they say."""

import jax
import jax.numpy as jnp
import pytest
from jax._src.ad_checkpoint import saved_residuals  # the data of `print_saved_residuals`
from jax.ad_checkpoint import checkpoint_name

import gopt
from gopt.cost.recompute.runs import Choices
from gopt.program.program import trace_program
from gopt.scheduling.candidate import kernels_of
from gopt.scheduling.recompute.names import names_of
from gopt.scheduling.recompute.plans import plan_of, runs_of
from gopt.scheduling.recompute.policies import choices_of
from gopt.scheduling.recompute.program import repeatable

X, WEIGHTS = jnp.ones((16, 512)), [jnp.ones((512, 512)) / 512] * 3


def loss(weights, x):
    for k, w in enumerate(weights):
        h = checkpoint_name(x @ w, f"product {k}")
        x = x + jnp.tanh(h) * jnp.exp(-(h**2))
    return jnp.mean(x**2)


def unnamed(weights, x):
    for w in weights:
        x = x + jnp.tanh(x @ w)
    return jnp.mean(x**2)


def decision(policy, fn=loss):
    """Return what holds the results of some equations alone."""
    found = repeatable(kernels_of(trace_program(jax.grad(fn), WEIGHTS, X), merged=True))
    choices = choices_of(found, policy)
    return plan_of(found, runs_of(found.problem, choices)).schedule


def is_product(equation):
    return equation.primitive.name == "dot_general"


def saved(names):
    """Return the shapes of what `jax.checkpoint` holds besides arguments."""
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    residuals = saved_residuals(jax.checkpoint(loss, policy=policy), WEIGHTS, X)
    return [aval.shape for aval, source in residuals if "argument" not in source]


def test_products_that_are_held_are_the_names():
    names = names_of(decision(is_product))
    assert names.names == ("product 0", "product 1", "product 2")
    assert not names.reason
    assert saved(names.names).count(X.shape) == 3


def test_one_product_may_be_held():
    found = repeatable(kernels_of(trace_program(jax.grad(loss), WEIGHTS, X), merged=True))
    choices = choices_of(found, is_product)
    splits = choices.splits.copy()
    products = [
        op
        for op, k in enumerate(found.traced.equations)
        if k >= 0 and is_product(found.kernels.source.equations[found.kernels.groups[k][-1]])
    ]
    nothing = choices_of(found, lambda equation: False)
    splits[products[0]] = nothing.splits[products[0]]  # runs again
    names = names_of(plan_of(found, runs_of(found.problem, Choices(None, splits))).schedule)
    assert names.names == ("product 1", "product 2")
    assert saved(names.names).count(X.shape) == 2


def test_a_value_without_a_name_is_named_in_the_reason():
    names = names_of(decision(is_product, unnamed))
    assert names.names is None
    assert "most of it for f32[16,512] of dot_general" in names.reason
    assert "test_names.py:" in names.reason


def test_a_name_of_values_that_are_held_and_that_run_again_says_nothing():
    def twice(weights, x):
        for w in weights:
            x = x + checkpoint_name(jnp.tanh(checkpoint_name(x @ w, "it")), "it")
        return jnp.mean(x**2)

    names = names_of(decision(is_product, twice))
    assert names.names is None
    assert names.reason == "'it' names values that are held and values that run again"


def test_a_function_without_a_gradient_has_no_names():
    found = repeatable(kernels_of(trace_program(lambda x: jnp.sin(x @ x.T), X), merged=True))
    once = plan_of(found, runs_of(found.problem, None)).schedule
    assert names_of(once).reason == "the function has no gradient outside of loops"


def test_results_have_a_policy():
    result = gopt.schedule(jax.grad(loss), WEIGHTS, X, memory="1 GiB", progress=False)
    assert result.policy().names is None
    assert result.policy().reason.startswith("nothing runs again")
    with pytest.raises(ValueError, match="the result has no policy"):
        gopt.schedule(lambda x: x @ x.T, X, evaluations=1, progress=False).policy()


def test_a_value_that_is_also_read_beside_its_name_is_not_held_by_it():
    def beside(weights, x):
        for k, w in enumerate(weights):
            h = x @ w
            x = x + jnp.tanh(checkpoint_name(h, f"product {k}")) * jnp.sin(h)
        return jnp.mean(x**2)

    names = names_of(decision(is_product, beside))
    assert names.names is None
    assert "dot_general" in names.reason


def test_a_loop_is_held_only_if_all_its_results_are():
    def looped(weights, x):
        stacked = jnp.stack(weights)
        x, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, stacked)
        return loss(weights, checkpoint_name(x, "looped"))

    held = decision(lambda e: e.primitive.name in ("dot_general", "scan"), looped)
    names = names_of(held)
    assert names.names is None
    assert "scan" in names.reason
