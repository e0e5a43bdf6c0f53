"""Each rule is an equality, in float64, for random shapes and attributes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gopt.rewriting.ir.operators import run
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.generated import generated
from gopt.rewriting.rules.matching import Matcher
from gopt.rewriting.rules.patterns import add, apply, concat, conv, given, matmul, mul, relu
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from tests.rewriting.programs import check_rule, sample

EVERY = (*RULES, *generated())
every_rule = pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)


def test_names_are_unique():
    assert len({rule.name for rule in EVERY}) == len(EVERY)


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("seed", range(4))
def test_both_sides_are_equal(rule, seed):
    check_rule(rule, seed)


@every_rule
def test_both_sides_are_the_same_integers(rule):
    check_rule(rule, 4, np.int8)


@every_rule
@pytest.mark.parametrize("seed", range(2))
def test_a_rule_is_found_where_its_source_is(rule, seed):
    with jax.enable_x64(True):
        terms, sources, bound, _ = sample(rule, seed)
        found = Matcher(terms, [rule]).matches(sources)
        assert any(
            set(one.terms) == set(sources)
            and {one.bound[name] for name in names(rule)} == {bound[name] for name in names(rule)}
            for one in found
        )


def names(rule):
    return set().union(*(pattern.names() for pattern in rule.source))


@pytest.mark.parametrize(
    "wrong",
    [
        Rule("ab = ba", (matmul("a", "b"),), (matmul("b", "a"),), {"a": "m m", "b": "m m"}),
        Rule(
            "conv(x, a)y = conv(x, a)",
            (mul(conv("x", "a"), "y"),),
            (conv("x", "a"),),
            {"x": "b h w c", "a": "r s i o", "y": "1 1 1 o"},
        ),
        Rule(
            "xa, xb are parts of x[b|a]",
            (matmul("x", "a"), matmul("x", "b")),
            tuple(
                replace(each, inputs=(matmul("x", concat("b", "a", axis=-1)),))
                for each in next(r for r in RULES if r.name.startswith("xa, xb")).target
            ),
            {"x": "... m k", "a": "... k n", "b": "... k p"},
        ),
        Rule(
            "a kernel of 1 is one of 3, all padding after the image",  # as `SAME` may have it
            (conv("x", "a", padding=given("padding"), dilation=(1, 1)),),
            (
                conv(
                    "x",
                    apply("pad", "a", widths=((1, 1), (1, 1), (0, 0), (0, 0))),
                    padding=given("padding", by=lambda of: tuple((p, q + 2) for p, q in of)),
                    dilation=(1, 1),
                ),
            ),
            {"x": "b h w c", "a": "1 1 i o"},
        ),
        Rule(
            "two groups of a convolution are one that reads both",
            (conv("x", "a", groups=given("groups", where=lambda groups: groups % 2 == 0)),),
            (
                conv(
                    "x",
                    concat("a", "a", axis=2),
                    groups=given("groups", by=lambda groups: groups // 2),
                ),
            ),
            {"x": "b h w c", "a": "r s i o"},
        ),
        Rule(
            "relu(x + y) = relu(x) + relu(y)",
            (apply("relu", add("x", "y")),),
            (add(apply("relu", "x"), apply("relu", "y")),),
            {"x": "m n", "y": "m n"},
        ),
    ],
    ids=lambda rule: rule.name,
)
def test_a_wrong_rule_is_caught(wrong):
    with pytest.raises(AssertionError):
        for seed in range(4):
            check_rule(wrong, seed)


def test_sums_of_shifted_images_are_not_narrow():
    rng = np.random.default_rng(0)
    image, kernel = rng.uniform(1, 2, (1, 9, 9, 3)), rng.uniform(1, 2, (7, 7, 1, 3))
    attributes = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    given_ = tuple(sorted(attributes.items()))
    narrow = [jnp.asarray(x, jnp.bfloat16) for x in (image, kernel)]
    found = run("depthwise", given_, narrow)
    assert found.dtype == jnp.bfloat16
    expected = run("depthwise", given_, [x.astype(jnp.float32) for x in narrow])
    np.testing.assert_allclose(found.astype(jnp.float32), expected, rtol=2**-8)


def test_what_is_transposed_keeps_the_precision_of_each_side():
    terms, shape = Terms(), jax.ShapeDtypeStruct((3, 3), np.float32)
    x, y = (terms.argument(k, shape, constant=False) for k in range(2))
    both = lax.Precision.HIGHEST, lax.Precision.DEFAULT
    product = terms.add("matmul", [x, y], precision=both, dtype=None)
    root = terms.add("transpose", [product], permutation=(1, 0))
    (rule,) = (rule for rule in RULES if rule.name == "(xy)' = y'x'")
    matcher = Matcher(terms, [rule])
    (after,) = matcher.apply([root], *matcher.matches([root]))
    left, right = terms[after].inputs
    assert terms[left].inputs == (y,) and terms[right].inputs == (x,)
    assert terms[after].attribute("precision") == both[::-1]


def test_a_rule_has_a_target_for_each_pattern():
    with pytest.raises(ValueError, match="'odd' has 1 patterns and 2 targets"):
        Rule("odd", (relu("x"),), ("x", "x"))
    with pytest.raises(ValueError, match="3 patterns and 3 targets: expected one of each, or two"):
        Rule("many", (relu("x"),) * 3, ("x",) * 3)
    with pytest.raises(ValueError, match="'odd' has 'matmull': expected"):
        Rule("odd", (relu(apply("matmull", "x")),), ("x",))
    with pytest.raises(ValueError, match="'odd' has 'foo': expected"):
        Rule("odd", (relu("x"),), (apply("foo", "x"),))
    with pytest.raises(ValueError, match=r"'odd' puts 'y', of \['x'\]"):
        Rule("odd", (relu("x"),), (relu("y"),))
    with pytest.raises(ValueError, match=r"'odd' has as constant 'y', of \['x'\]"):
        Rule("odd", (relu("x"),), ("x",), constant=("y",))
    strange = Rule("odd", (apply("concat", "x", "x", axis=0, zzz=1),), ("x",))
    terms = Terms()
    x = terms.argument(0, jax.ShapeDtypeStruct((2, 2), jnp.float32), constant=False)
    with pytest.raises(ValueError, match=r"concat has no 'zzz': expected some of \['axis'\]"):
        Matcher(terms, [strange]).matches([terms.add("concat", [x, x], axis=0)])
    with pytest.raises(ValueError, match="'both' has two patterns: expected one"):
        Rule("both", (relu("x"),) * 2, ("x",) * 2, alone=True)
