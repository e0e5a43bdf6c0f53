"""The generator finds known rules and no wrong ones; all that it found are equalities."""

import itertools
import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import lax

from experiments.rewrite import generating
from gopt.rewriting.generate_rules import choosing
from gopt.rewriting.generate_rules.domains import IMAGES, MATRICES, AxisEqualities
from gopt.rewriting.generate_rules.enumeration import Expressions
from gopt.rewriting.generate_rules.equalities import Equality, names_of
from gopt.rewriting.generate_rules.fingerprints import LIKE, computed
from gopt.rewriting.ir.operators import run
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.generated import generated, read_rules, spelled, write_rules
from gopt.rewriting.rules.matching import Matcher
from gopt.rewriting.rules.patterns import add, concat, conv, matmul, mul, relu, transpose
from gopt.rewriting.rules.table import RULES


def test_rules_are_written_as_they_are_read():
    text = write_rules(generated())
    assert text.count(" = ") * 2 + text.count(" -> ") == len(generated()) > 0
    assert tuple(rule for line in text.splitlines() for rule in read_rules(line)) == generated()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("relu(x) -> x", "is no rule: expected"),
        ("relu(x) | x: m", "is no rule: expected"),
        ("relu(x) -> sin(x) | x: m", "is no pattern of matmul, conv"),
        ("relu(x) -> 1 | x: m", "is no pattern of matmul, conv"),
        ("relu(x -> x | x: m", "is no pattern: "),
    ],
)
def test_lines_that_are_no_rules_are_refused(line, message):
    with pytest.raises(ValueError, match=message):
        list(read_rules(line))


def small(domain, names, *patterns):
    """A domain with some of the names and operators of another."""
    operators = [one for one in domain.operators if one.pattern(*"xy"[: one.arity]) in patterns]
    assert len(operators) == len(patterns)
    return domain._replace(
        names={name: domain.names[name] for name in names}, operators=tuple(operators)
    )


def generator(domain, operators, kind=Expressions):
    expressions = kind(domain)
    for level in range(operators):
        expressions.grow(last=level == operators - 1)
    found = choosing.Generator(expressions, times=1)
    for group in found.groups():
        found.choose(group)
    return found


TINY = small(MATRICES, "xy", matmul("x", "y"), add("x", "y"), relu("x"), concat("x", "y", axis=-1))
NUMPY = {
    "matmul": np.matmul,
    "add": np.add,
    "relu": lambda x: np.maximum(x, 0),
    "concat": lambda *parts, axis: np.concatenate(parts, axis),
}


def every_tree(domain, count):
    """All expressions of so many operators, with their shapes, the slow way."""
    if count == 0:
        yield from domain.names.items()
        return
    for operator in domain.operators:
        for counts in itertools.product(range(count), repeat=operator.arity):
            if sum(counts) == count - 1:
                for inputs in itertools.product(*(every_tree(domain, k) for k in counts)):
                    trees, shapes = zip(*inputs, strict=True)
                    shape = operator.shape(*shapes, same=lambda a, b: a == b)
                    if shape is not None:
                        yield operator.pattern(*trees), shape


def value(tree, numbers):
    if isinstance(tree, str):
        return numbers[tree]
    inputs = [value(each, numbers) for each in tree.inputs]
    return NUMPY[tree.operator](*inputs, **dict(tree.attributes))


def test_expressions_are_all_that_there_are():
    """One stands for each value that any expression has, and those that are equal are."""
    rng = np.random.default_rng(0)
    every = np.iinfo(np.int64)
    numbers = {name: rng.integers(every.min, every.max, (7, 3, 3)) for name in "xy"}
    expressions = Expressions(TINY)
    values = {value(name, numbers).tobytes() for name in "xy"}
    for count in range(1, 4):
        expressions.grow(last=count == 3)
        values |= {value(tree, numbers).tobytes() for tree, _ in every_tree(TINY, count)}
        assert len(np.unique(expressions.first)) == len(values)
    for number in range(len(expressions)):
        one, other = (expressions.tree(k) for k in (number, int(expressions.first[number])))
        np.testing.assert_array_equal(value(one, numbers), value(other, numbers))
        assert expressions.distinct[number] == len(names_of(one))
        if not isinstance(one, str):
            reads = expressions.reads(number)
            assert expressions.find(int(expressions.operator[number]), reads) == number


@pytest.fixture(scope="module")
def matrices():
    operators = matmul("x", "y"), add("x", "y"), relu("x")
    joins = concat("x", "y", axis=-1), concat("x", "y", axis=-2)
    return generator(small(MATRICES, "xyzu", *operators, *joins), 3)


@pytest.fixture(scope="module")
def images():
    convolutions = conv("x", "y"), conv("x", "y", groups=2), add("x", "y")
    return generator(small(IMAGES, "xyab", *convolutions, concat("x", "y", axis=-1)), 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "known",
    [
        "matmul(matmul(x, y), z) -> matmul(x, matmul(y, z)) | x: ... m k, y: ... k n, z: ... n p",
        "matmul(x, add(y, z)) -> add(matmul(x, y), matmul(x, z)) |"
        " x: ... m k, y: ... k n, z: ... k n",
        "add(matmul(x, z), matmul(y, z)) -> matmul(add(x, y), z) |"
        " x: ... m k, y: ... m k, z: ... k n",
        "add(matmul(x, z), matmul(y, u)) -> matmul(concat(x, y, axis=-1), concat(z, u, axis=-2)) |"
        " x: ... m k, y: ... m n, z: ... k p, u: ... n p",
        "relu(concat(x, y, axis=-1)) -> concat(relu(x), relu(y), axis=-1) | x: ... m k, y: ... m n",
        "add(concat(x, y, axis=-2), concat(z, u, axis=-2)) -> concat(add(x, z), add(y, u), axis=-2)"
        " | x: ... m k, y: ... n k, z: ... m k, u: ... n k",
    ],
)
def test_known_rules_of_matrices_are_found(matrices, known):
    check_found(matrices, known)


@pytest.mark.slow
@pytest.mark.parametrize(
    "known",
    [
        "conv(x, add(a, b)) -> add(conv(x, a), conv(x, b)) | x: b h w c, a: r s i o, b: r s i o",
        "concat(conv(x, a, groups=1), conv(x, b, groups=1), axis=-1) ->"
        " conv(x, concat(a, b, axis=-1), groups=1) | x: b h w c, a: r s c o, b: r s c n",
        "concat(conv(x, a, groups=1), conv(y, b, groups=1), axis=-1) ->"
        " conv(concat(x, y, axis=-1), concat(a, b, axis=-1), groups=2) |"
        " x: b h w c, y: b h w c, a: r s c o, b: r s c o",
    ],
)
def test_known_rules_of_images_are_found(images, known):
    check_found(images, known)


def check_found(generator, known):
    """Checks that a generator has chosen a rule, and has come upon nothing wrong."""
    assert generator.counts["wrong"] == 0
    found = {rule.name: rule for one in generator.chosen for rule in one.rules()}
    (rule,) = read_rules(known)
    assert found[rule.name] == rule


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matrices", "images"])
def test_what_is_chosen_is_an_equality(request, name):
    """With other numbers than those by which it was chosen."""
    found = request.getfixturevalue(name)
    assert all(one.holds(99) for one in found.chosen)


class Special(Expressions):
    """Expressions that are compared on matrices of ones alone."""

    def _draw(self, size):
        return np.ones(size, np.int64)


@pytest.mark.slow
def test_what_is_equal_for_some_numbers_alone_is_not_chosen():
    found = generator(TINY, 2, Special)
    assert found.counts["wrong"] > 10
    right = generator(TINY, 2)
    names = [{spelled(side) for side in one.sides} for one in found.chosen]
    assert all(one.holds(seed) for one in found.chosen for seed in range(9))
    assert {"matmul(x, add(x, x))", "matmul(add(x, x), x)"} in names
    assert right.counts["wrong"] == 0


SQUARE = {"x": ("m", "m"), "y": ("m", "m")}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (matmul("x", "y"), matmul("y", "x")),
        (mul("x", "y"), matmul("x", "y")),
        (concat("x", "y", axis=-1), concat("x", "y", axis=-2)),
        (relu(mul("x", "x")), mul("x", "x")),  # integers wrap around
        (relu(add("x", "y")), add(relu("x"), relu("y"))),
        # So it is for matrices of two rows.
        (
            mul("x", transpose(matmul("x", "x"), permutation=(1, 0))),
            mul(matmul("x", "x"), transpose("x", permutation=(1, 0))),
        ),
    ],
    ids=lambda side: spelled(side),
)
def test_what_is_wrong_does_not_hold(left, right):
    assert not Equality((left, right), SQUARE, False).holds(0)


@pytest.mark.slow
def test_convolutions_have_any_groups_only_if_they_may():
    shapes = {"x": ("b", "h", "w", "c"), "a": ("r", "s", "c", "o"), "b": ("r", "s", "c", "o")}
    parts = concat(conv("x", "a"), conv("x", "b"), axis=-1), conv("x", concat("a", "b", axis=-1))
    sums = add(conv("x", "a"), conv("x", "b")), conv("x", add("a", "b"))
    of_one = tuple(replace(side, attributes=(("groups", 1),)) for side in sums)
    assert all(Equality(sums, shapes, True).holds(seed) for seed in range(4))
    assert not all(Equality(parts, shapes, True).holds(seed) for seed in range(4))
    assert all(Equality(parts, shapes, False).holds(seed) for seed in range(4))
    assert Equality(sums, shapes, True).rules()[0].shapes["a"] == "r s i o"
    assert Equality(of_one, shapes, False).rules()[0].shapes["a"] == "r s c o"


def test_what_asks_for_special_shapes_does_not_stand_for_others():
    convolutions = conv("x", "y", groups=2), conv("x", "y"), concat("x", "y", axis=-1)
    domain = small(IMAGES, "xyab", *convolutions)
    domain = domain._replace(operators=domain.operators[::-1])
    with pytest.raises(ValueError, match="holds for special shapes alone: it has to come first"):
        generator(domain, 3)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_are_compared_by_what_xla_computes(groups):
    rng = np.random.default_rng(0)
    x, kernel = (rng.integers(-9, 9, shape) for shape in ((2, 4, 5, 4), (3, 2, 4 // groups, 6)))
    pattern = conv("x", "a", groups=groups)
    attributes = {**LIKE["conv"], "groups": groups}
    with jax.enable_x64(True):
        found = computed(pattern)(x[None, None], kernel[None, None])[0, 0]
        floats = [each.astype(float) for each in (x, kernel)]
        np.testing.assert_array_equal(found, run("conv", tuple(attributes.items()), floats))


def test_letters_that_are_joined_are_one():
    letters = AxisEqualities()
    assert letters.same(("a", "b"), ("c", "d")) and letters.same(("d",), ("e",))
    assert not letters.same(("a",), ("c", "d"))
    assert letters.find("b") == letters.find("e") != letters.find("a") == letters.find("c")


def test_sides_of_a_product_are_swapped_if_both_have_one_precision():
    (rule,) = (rule for rule in generated() if rule.name.startswith("matmul(x, transpose(y"))
    terms, shape = Terms(), jax.ShapeDtypeStruct((3, 3), np.float32)
    x, y = (terms.argument(k, shape, constant=False) for k in range(2))
    turned = terms.add("transpose", [y], permutation=(1, 0))
    high, low = lax.Precision.HIGHEST, lax.Precision.DEFAULT
    count = {}
    for precision in (None, (high, high), (high, low)):
        root = terms.add("matmul", [x, turned], precision=precision, dtype=None)
        count[precision] = len(Matcher(terms, [rule]).matches([root]))
    assert count == {None: 1, (high, high): 1, (high, low): 0}


def found_of(left, right, shapes):
    equality = Equality((left, right), shapes, False)
    return [choosing.RuleCandidate(equality, rule) for rule in equality.rules()]


def test_what_follows_from_rules_is_told():
    shapes = {"x": ("m", "k"), "y": ("k", "n"), "z": ("k", "n")}
    joined = matmul("x", concat("y", "z", axis=-1))
    parts = concat(matmul("x", "y"), matmul("x", "z"), axis=-1)
    split, join = found_of(joined, parts, shapes)
    # Two products are parts of one, and all parts are the whole.
    assert choosing.is_derivable(join, RULES)
    assert not choosing.is_derivable(split, RULES)
    assert choosing.is_derivable(split, [*RULES, split.rule])
    assert not choosing.is_derivable(join, [])


def test_what_follows_from_the_rest_is_left_out():
    shapes = dict.fromkeys("xyz", ("m", "n"))
    special = found_of(mul("x", add("y", "y")), mul("y", add("x", "x")), shapes)
    general = found_of(mul("x", add("y", "z")), add(mul("x", "y"), mul("x", "z")), shapes)
    again = replace(general[0].rule, name="again")
    every = [*special, general[0], choosing.RuleCandidate(general[0].equality, again)]
    assert choosing.independent(every, RULES) == [general[0].rule]
    assert choosing.independent(special, RULES) == [special[0].rule]


def test_what_is_one_term_or_repeats_is_told():
    shapes = {"x": ("m", "n")}
    double = transpose(transpose("x", permutation=(1, 0)), permutation=(1, 0))
    assert choosing.is_same(Equality((double, "x"), shapes, False))
    once, twice = relu("x"), relu(relu("x"))
    assert not choosing.is_same(Equality((once, twice), shapes, False))
    assert [choosing.is_useless(one.rule) for one in found_of(once, twice, shapes)] == [True, False]


@pytest.mark.slow
def test_the_experiment_saves_rules_and_a_table(tmp_path, capsys):
    settings = generating.Settings(domains=("matrices",), operators=2, folder=tmp_path)
    new = generating.main(settings)
    text = (tmp_path / "generated.txt").read_text()
    assert text == write_rules(new)
    assert "relu(relu(x)) -> relu(x) | x: ...\n" in text
    (row,) = json.loads((tmp_path / "generating.json").read_text())
    assert row["expressions"] == 2024 and row["wrong"] == 0 and row["new"] == len(new)
    assert "Equal expressions of 2 operators at most" in (tmp_path / "table.md").read_text()
    assert "matrices" in capsys.readouterr().out


def test_settings_are_checked():
    with pytest.raises(ValueError, match="operators is 0: expected 1 at least"):
        generating.Settings(operators=0)
    with pytest.raises(ValueError, match="domains"):
        generating.Settings(domains=("graphs",))
