"""Forms of ops that are wrong in part, and what corrects them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.rewriting import Terms, backtracking, roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.search import pet
from gopt.rewriting.search.pet import corrected, mutated, partial_equivalence
from gopt.rewriting.search.pet_mutants import MUTATIONS, fold
from tests.rewriting.programs import values

CONV, MATMUL = MUTATIONS["conv"], MUTATIONS["matmul"]


def conv(rng, **given):
    """Terms, a convolution of random shapes, and what it reads."""
    groups = int(rng.integers(1, 3))
    own = {
        "strides": tuple(map(int, rng.integers(1, 3, 2))),
        "padding": tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(2)),
        "dilation": tuple(map(int, rng.integers(1, 3, 2))),
        "groups": groups,
        "precision": None,
        "dtype": None,
        "image": (int(rng.integers(1, 5)), *map(int, rng.choice([6, 8, 9, 12], 2))),
        "kernel": tuple(map(int, rng.integers(1, 4, 2))),
    } | given
    image, kernel, groups = own.pop("image"), own.pop("kernel"), own["groups"]
    channels, made = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    return product(rng, "conv", (*image, channels), (*kernel, channels // groups, made), **own)


def product(rng, operator, *shapes, **attributes):
    """Terms, one of two arrays, and these."""
    terms = Terms()
    inputs = [
        terms.argument(k, jax.ShapeDtypeStruct(shape, np.float64), constant=False)
        for k, shape in enumerate(shapes)
    ]
    return (
        terms,
        terms.add(operator, inputs, **attributes),
        [rng.standard_normal(s) for s in shapes],
    )


def is_equal(terms, one, other, arguments):
    with jax.enable_x64(True):
        a, b = values(terms, [one, other], arguments)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-11)


SAME = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "kernel": (3, 3)}
PIXELS = {"strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "kernel": (1, 1)}
STEPS = {**SAME, "strides": (2, 2), "padding": ((0, 1), (1, 1)), "groups": 1}


GIVEN = (
    {},
    {"groups": 1},
    SAME,
    PIXELS,
    {**PIXELS, "strides": (1, 1)},
    {**STEPS, "image": (4, 8, 8)},
)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONV)
def test_corrected_forms_of_convolutions_are_equal(name):
    found = 0
    for seed in range(9):
        rng = np.random.default_rng(seed)
        terms, number, arguments = conv(rng, **GIVEN[seed % len(GIVEN)])
        form = corrected(terms, number, CONV[name])
        if form is not None:
            found += 1
            assert form != number and is_equal(terms, number, form, arguments)
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 6, 9])
@pytest.mark.parametrize("target", ["rows", "columns"])
def test_kernels_that_reach_over_several_images_are_corrected(count, target):
    """In so many images, of which fewer are tried, one may read another that is not the next."""
    found = 0
    for dilation, height, width in itertools.product((1, 2, 4), (1, 8), (1, 4)):
        padding = ((dilation, dilation), (dilation, dilation))
        given = {**SAME, "dilation": (dilation, dilation), "padding": padding}
        image = (count, height, width)
        terms, number, arguments = conv(np.random.default_rng(count), **given, image=image)
        for part in ("all images", "halves of images"):
            form = corrected(terms, number, CONV[f"{part} in {target}"])
            if form is not None:
                found += 1
                assert is_equal(terms, number, form, arguments)
    assert found
    given = {**SAME, "dilation": (4, 1), "padding": ((4, 4), (0, 0)), "kernel": (3, 1)}
    terms, number, arguments = conv(np.random.default_rng(0), **given, image=(8, 1, 4))
    form = corrected(terms, number, CONV["all images in rows"])
    assert form is None or is_equal(terms, number, form, arguments)


@pytest.mark.parametrize(
    "shapes",
    [
        ("conv", (0, 8, 8, 3), (3, 3, 3, 4)),
        ("conv", (2, 8, 8, 0), (3, 3, 0, 4)),
        ("conv", (3, 1, 8, 4), (3, 3, 4, 4)),  # nothing comes out
        ("matmul", (0, 8), (8, 8)),
        ("matmul", (4, 0), (0, 8)),
    ],
)
def test_where_there_is_nothing_there_are_no_forms(shapes):
    operator, *both = shapes
    own = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    attributes = {"precision": None, "dtype": None, **(own if operator == "conv" else {})}
    terms, number, _ = product(np.random.default_rng(0), operator, *both, **attributes)
    assert all(corrected(terms, number, each) is None for each in MUTATIONS[operator].values())


def test_strides_that_step_over_all_but_padding_have_no_phases():
    given = {**SAME, "strides": (1, 4), "padding": ((0, 0), (5, 0)), "kernel": (1, 5), "groups": 1}
    terms, number, arguments = conv(np.random.default_rng(0), **given, image=(1, 4, 1))
    form = corrected(terms, number, CONV["pixels of a step in channels"])
    assert form is None or is_equal(terms, number, form, arguments)


def test_a_form_of_other_sizes_alone_is_tried_with_these():
    def thirds(terms, number):
        x, kernel = terms[number].inputs
        if terms.shape(x)[0] % 9:
            return None
        whole = terms.add(
            "conv", [fold(terms, x, 0, 1, 3), kernel], **dict(terms[number].attributes)
        )
        return fold(terms, whole, 1, 0, 3)

    terms, number, arguments = conv(np.random.default_rng(0), **SAME, image=(18, 4, 4))
    assert is_equal(terms, number, corrected(terms, number, thirds), arguments)


@pytest.mark.parametrize("name", MATMUL)
def test_forms_of_products_are_equal(name):
    found = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        batch = ((), (3,))[seed % 2]
        m, k, n = map(int, rng.choice([1, 2, 4, 7, 16], 3))
        terms, number, arguments = product(
            rng, "matmul", (*batch, m, k), (*batch, k, n), precision=None, dtype=None
        )
        form = corrected(terms, number, MATMUL[name])
        if form is not None:
            found += 1
            assert is_equal(terms, number, form, arguments)
    assert found


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("all images in rows", {"image": (3, 8, 6)}),
        ("halves of rows in images", {"image": (1, 8, 6)}),
        ("halves of images in columns", {"image": (2, 8, 6)}),
        ("halves of columns in rows", {"image": (1, 8, 12)}),
        ("all images in rows", {"image": (3, 8, 6), "dilation": (2, 2), "padding": ((2, 2),) * 2}),
        (
            "all images in columns",
            {"image": (3, 8, 8), "strides": (2, 2), "padding": ((0, 1),) * 2},
        ),
    ],
)
def test_forms_are_wrong_in_part_before_they_are_corrected(name, given):
    rng = np.random.default_rng(0)
    terms, number, arguments = conv(rng, **{**SAME, **given})
    form = CONV[name](terms, number)
    assert not is_equal(terms, number, form, arguments)
    right = corrected(terms, number, CONV[name])
    assert right is not None and right != form
    assert is_equal(terms, number, right, arguments)


def test_what_is_not_corrected_is_wrong(monkeypatch):
    """The test above can fail: where nothing is found to be wrong, nothing is corrected."""
    monkeypatch.setattr(pet, "_wrong", lambda operator, _, shapes, __: np.zeros((1, 8, 6, 1), bool))
    pet._runs.cache_clear()
    terms, number, arguments = conv(np.random.default_rng(0), **SAME, image=(3, 8, 6))
    found = corrected(terms, number, CONV["all images in rows"])
    pet._runs.cache_clear()
    assert not is_equal(terms, number, found, arguments)


def test_only_what_is_wrong_is_computed_by_the_op_itself():
    terms, number, _ = conv(np.random.default_rng(0), **SAME, image=(3, 8, 6))
    found = terms[corrected(terms, number, CONV["all images in rows"])]
    assert found.operator == "concat"
    assert [terms[k].operator for k in found.inputs] == ["conv", "slice", "conv"]
    assert [terms.shape(k)[1] for k in found.inputs] == [1, 6, 1]


def test_a_form_that_is_wrong_everywhere_is_of_no_use():
    def others(terms, number):
        return terms.add("add", [number, number])

    terms, number, _ = conv(np.random.default_rng(0))
    assert corrected(terms, number, others) is None
    terms, number, _ = product(
        np.random.default_rng(0), "matmul", (2, 3), (3, 4), precision=None, dtype=None
    )
    assert corrected(terms, number, others) is None


@pytest.mark.parametrize("source", range(3))
@pytest.mark.parametrize("target", range(3))
def test_what_is_folded_is_unfolded(source, target):
    terms = Terms()
    x = terms.argument(0, jax.ShapeDtypeStruct((4, 6, 8, 3), np.float32), constant=False)
    if source == target:
        with pytest.raises(ValueError, match="is both source and target"):
            fold(terms, x, source, target, 2)
        return
    there = fold(terms, x, source, target, 2)
    back = fold(terms, there, target, source, 2)
    assert terms.shape(back) == terms.shape(x)
    array = np.random.default_rng(0).random((4, 6, 8, 3), np.float32)
    there, back = values(terms, [there, back], [array])
    np.testing.assert_array_equal(back, array)
    # Parts of one image stay together.
    image = {0: array[0], 1: array[0, :3], 2: array[0, :, :4]}[source]
    if target:
        h, w = image.shape[:2]
        np.testing.assert_array_equal(there[0, :h, :w], image)
    with pytest.raises(ValueError, match="expected a multiple of 5"):
        fold(terms, x, source, target, 5)


def model(weights, x):
    for kernel in weights:
        x = jax.nn.relu(
            jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )
    return x


def many_images_cost(operator, attributes, shapes, constant):
    """Convolutions take a time for each image, as if nothing of them ran side by side."""
    if operator != "conv":
        return 1e-3 * roofline()(operator, attributes, shapes, constant)
    return shapes[0].shape[0] + 1e-6 * np.prod(shapes[0].shape[1:])


@pytest.mark.slow
def test_programs_of_forms_are_equal_and_cost_less():
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((3, 3, 4, 4), np.float32) for _ in range(2)]
    x = rng.standard_normal((8, 16, 16, 4), np.float32)
    found = gopt.rewrite(
        model,
        weights,
        x,
        constant_argnums=0,
        search=functools.partial(partial_equivalence, rounds=1),
        cost=many_images_cost,
        repeats=1,
    )
    assert "all images in rows, zeros between" in found.report.rules
    assert found.report.costs[1] < found.report.costs[0]
    assert found.report.is_telling and found.report.difference <= found.report.tolerance


def test_it_finds_nothing_worse_than_backtracking():
    def program(x, a, b):
        return (x @ a) @ b + x @ b  # rules alone lower the cost

    shapes = [jax.ShapeDtypeStruct((32, 32), jnp.float32)] * 3
    terms = Terms()
    roots = gopt.rewriting.terms_of_program(
        terms, gopt.program.program.trace_program(program, *shapes), [False] * 3
    )
    taso = backtracking(terms, roots, roofline())
    found = partial_equivalence(terms, roots, roofline())
    assert found.cost <= taso.cost
    assert found.cost == TermCosts(terms, roofline()).program(found.roots)
    with pytest.raises(ValueError, match="rounds is -1"):
        partial_equivalence(terms, roots, roofline(), rounds=-1)


def test_without_forms_nothing_changes():
    terms, number, _ = conv(np.random.default_rng(0))
    found = mutated(terms, [number], TermCosts(terms, roofline()), {})
    assert found.roots == (number,) and not found.rewrites
