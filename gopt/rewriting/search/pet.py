"""PET's search: replace ops by partially equivalent forms, and correct the wrong parts.

After Wang et al., "PET: Optimizing Tensor Programs with Partially Equivalent Transformations and
Automated Corrections", OSDI 2021. As there, an op and its form are linear in each array that they
read, so random numbers show where they are equal. The op itself computes the wrong parts, from the
part of the images that they need. PET enumerates forms from all small programs of some ops; here
they come from `gopt.rewriting.search.pet_mutants`.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from gopt.host.progress import Progress
from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import Change, TermCosts
from gopt.rewriting.ir.operators import Attributes
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import evaluate
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.pet_mutants import BLOCK, MUTATIONS, Mutation
from gopt.rewriting.search.result import RewriteSearchResult
from gopt.rewriting.search.taso import backtracking

_PIECES = 7  # largest number of runs: more of them cost more than a form can save
_LARGEST = 2**20  # bound of the random numbers: sums of products stay exact in float64

Runs = tuple[tuple[int, int, bool], ...]  # (start, stop, whether the form is wrong there)


def corrected(terms: Terms, number: int, mutation: Mutation) -> int | None:
    """Return a term equal to an op, built from one of its forms; None if the form is of no use.

    Args:
      terms: terms to add to.
      number: term of a product or a convolution.
      mutation: mutation of its operator.

    Raises:
      ValueError: the mutation has a form for this term, but not for others of its sizes; see
        `gopt.rewriting.search.pet_mutants.Mutation`.
    """
    operator, attributes, inputs = terms[number]
    shapes = tuple(terms.shape(i) for i in inputs)
    if 0 in (size for shape in (*shapes, terms.shape(number)) for size in shape):
        return None
    form = mutation(terms, number)
    if form is None or form == number:
        return None
    runs = _runs(operator, attributes, shapes, mutation)
    if runs is None:
        return None
    rows, columns = runs

    def pieces(axis: int, runs: Runs, form: int) -> Iterator[int]:
        for start, stop, is_wrong in runs:
            if is_wrong:
                yield _stretch(terms, number, axis, start, stop)
            else:
                yield terms.add("slice", [form], axis=axis, start=start, stop=stop)

    if any(is_wrong for *_, is_wrong in columns):
        form = terms.add("concat", list(pieces(2, columns, form)), axis=2)
    if any(is_wrong for *_, is_wrong in rows):
        form = terms.add("concat", list(pieces(1, rows, form)), axis=1)
    return form


@functools.lru_cache(maxsize=10_000)
def _runs(
    operator: str, attributes: Attributes, shapes: tuple[tuple[int, ...], ...], mutation: Mutation
) -> tuple[Runs, Runs] | None:
    """Return the runs of wrong rows and columns of a form; None if no part of it is of use."""
    wrong = _wrong(operator, attributes, shapes, mutation)
    if operator != "conv":
        # Parts of matrices are not corrected.
        return None if wrong.any() else ((), ())
    image = np.any(wrong, axis=(0, -1))
    rows = image.mean(1) > 0.5
    columns = np.any(image[~rows], axis=0)
    runs = _runs_of(rows), _runs_of(columns)
    useless = rows.all() or columns.all() or max(map(len, runs)) > _PIECES
    return None if useless else runs


def _wrong(
    operator: str, attributes: Attributes, shapes: tuple[tuple[int, ...], ...], mutation: Mutation
) -> np.ndarray:
    """Return True where a form differs from its op, for random inputs.

    Many images, channels, rows or columns are treated alike. The comparison therefore uses the
    fewest that give the same form, or all if the mutation has no form for so few.
    """
    few = _FEW[operator](dict(attributes), *shapes)
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        for put, smaller in (few, (dict(attributes), shapes)):
            terms, rng = Terms(), np.random.default_rng(0)
            inputs = [
                terms.argument(k, jax.ShapeDtypeStruct(shape, np.float64), constant=False)
                for k, shape in enumerate(smaller)
            ]
            number = terms.add(operator, inputs, **{**put, "dtype": None})
            form = mutation(terms, number)
            if form is not None:
                break
        else:
            raise ValueError(f"{mutation} has a form of {shapes}, but not of others with its sizes")
        values = [rng.integers(-_LARGEST, _LARGEST, shape).astype(float) for shape in smaller]
        right, found = evaluate(terms, [number, form], values.__getitem__)
        return np.asarray(right != found)


def _few_images(
    put: dict[str, Any], images: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[dict[str, Any], tuple[tuple[int, ...], ...]]:
    """Return the attributes and shapes of a convolution of fewer images and channels."""
    (count, *image, _), (*window, read, made) = images, kernel
    # An image may read its neighbours, as far as its kernel reaches.
    reaches = [
        max(d * (n - 1), *map(abs, p)) // size + 1
        for d, n, p, size in zip(put["dilation"], window, put["padding"], image, strict=True)
    ]
    groups = _few(put["groups"], 2)
    made = groups * _few(made // put["groups"], 2)
    read = _few(read, 2)
    shapes = (_few(count, max(reaches) + 3), *image, groups * read), (*window, read, made)
    return {**put, "groups": groups}, shapes


def _few_rows(
    put: dict[str, Any], x: tuple[int, ...], y: tuple[int, ...]
) -> tuple[dict[str, Any], tuple[tuple[int, ...], ...]]:
    """Return the attributes and shapes of a product of smaller matrices."""
    block = 2 * BLOCK
    shapes = tuple(
        (*(_few(n, 2) for n in s[:-2]), *(_few(n, block) for n in s[-2:])) for s in (x, y)
    )
    return put, shapes


_FEW = {"conv": _few_images, "matmul": _few_rows}


def _few(count: int, least: int) -> int:
    """Return a count near `least` that has the same remainder modulo 2, or modulo `BLOCK`."""
    if count <= least:
        return count
    return least + (count - least) % (BLOCK if least >= BLOCK else 2)


def _runs_of(wrong: np.ndarray) -> Runs:
    """Return the runs that are all wrong or all right."""
    ends = [0, *(np.flatnonzero(np.diff(wrong)) + 1), len(wrong)]
    return tuple((int(a), int(b), bool(wrong[a])) for a, b in itertools.pairwise(ends))


def _stretch(terms: Terms, number: int, axis: int, start: int, stop: int) -> int:
    """Return rows (axis 1) or columns (axis 2) of a convolution, from the input they need."""
    operator, attributes, (x, kernel) = terms[number]
    put, size = dict(attributes), terms.shape(x)[axis]
    stride, (before, _) = put["strides"][axis - 1], put["padding"][axis - 1]
    reach = put["dilation"][axis - 1] * (terms.shape(kernel)[axis - 1] - 1) + 1
    first, last = start * stride - before, (stop - 1) * stride - before + reach
    low, high = min(max(first, 0), size - 1), max(min(last, size), 1)
    padding = list(put["padding"])
    padding[axis - 1] = (low - first, last - high)
    part = terms.add("slice", [x], axis=axis, start=low, stop=high)
    return terms.add(operator, [part, kernel], **{**put, "padding": tuple(padding)})


def mutated(
    terms: Terms,
    roots: Sequence[int],
    prices: TermCosts,
    mutations: Mapping[str, Mapping[str, Mutation]] = MUTATIONS,
) -> RewriteSearchResult:
    """Return the program with the cheapest form of each op, if that is cheaper than the op.

    Args:
      terms: terms to add to.
      roots: results of the program.
      prices: costs of terms.
      mutations: mutations by operator and name.

    Returns:
      The program; `rewrites` are the names of the mutations, `visited` is the number of forms.

    Raises:
      ValueError: a form depends on the op that it replaces.
    """
    change, by, used = Change(terms, prices.term, roots), dict[int, int](), list[str]()
    visited = 0
    for number in terms.live(roots):
        if terms.constant[number]:
            continue
        least, best = 0.0, None
        for name, mutation in mutations.get(terms[number].operator, {}).items():
            form = corrected(terms, number, mutation)
            if form is None:
                continue
            visited += 1
            more = change.of({number: form})
            if more < least:
                least, best = more, (form, name)
        if best is not None:
            by[number] = best[0]
            used.append(best[1])
    after = terms.replace(roots, by)
    if after is None:
        raise ValueError("a form depends on what it stands for")
    return RewriteSearchResult(
        after, prices.program(after), tuple(used), visited, "each op has its best form"
    )


def partial_equivalence(
    terms: Terms,
    roots: Sequence[int],
    cost: OpCost,
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 2,
    alpha: float = 1.05,
    budget: int = 100,
    progress: Progress | None = None,
) -> RewriteSearchResult:
    """Return the cheapest program found by alternating rules and forms of ops.

    Args:
      terms: terms to add to.
      roots: results of the program.
      cost: cost of an op.
      rules: rules to apply, see `gopt.rewriting.search.taso.backtracking`.
      rounds: maximum number of rounds; each gives every op its cheapest form, then applies the
        rules. The rules are applied once before the first round.
      alpha: see `backtracking`.
      budget: see `backtracking`; for each of the `rounds + 1` applications of the rules.
      progress: see `backtracking`.

    Raises:
      ValueError: `alpha` is less than 1, or `budget` or `rounds` is less than 0.
    """
    if not rounds >= 0:
        raise ValueError(f"rounds is {rounds}: expected 0 at least")
    prices = TermCosts(terms, cost)
    progress = progress or Progress()
    search = functools.partial(backtracking, alpha=alpha, budget=budget, progress=progress)
    best = search(terms, roots, cost, rules)
    with progress.interruptible():
        for _ in range(rounds):
            if progress.is_over:
                break
            progress.phase("forms of ops")
            forms = mutated(terms, best.roots, prices)
            if forms.cost >= best.cost:
                break
            then = search(terms, forms.roots, cost, rules)
            best = RewriteSearchResult(
                then.roots,
                then.cost,
                (*best.rewrites, *forms.rewrites, *then.rewrites),
                best.num_visited + forms.num_visited + then.num_visited,
                then.stop_reason,
            )
    return best._replace(stop_reason=progress.cut_note or best.stop_reason)
