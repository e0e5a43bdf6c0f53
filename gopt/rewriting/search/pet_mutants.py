"""Partially equivalent forms of ops, which PET calls mutants.

A form has the shape of its op, but may differ in some values. Where images lie side by side in one
image, a kernel reads the neighbour instead of the padding. `gopt.rewriting.search.pet` finds and
corrects the wrong values. After Wang et al., "PET: Optimizing Tensor Programs with Partially
Equivalent Transformations and Automated Corrections", OSDI 2021.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from gopt.rewriting.ir.terms import Terms

# Returns the form of a term, linear in each array that the term reads; None if it has none. It is
# also tried with fewer images, channels and groups, and with smaller matrices: the fewest with the
# same remainder modulo two, or, for matrices, modulo `BLOCK`.
Mutation = Callable[[Terms, int], int | None]

_AXES = ("images", "rows", "columns")
# Matrix sizes are padded to multiples of this: registers of most CPUs hold as many values.
BLOCK = 16


def fold(terms: Terms, x: int, source: int, target: int, factor: int) -> int:
    """Move a factor of one axis of images into another axis; both keep their order.

    Images `[B, H, W, C]` that move are placed before the rows or columns of those that stay. Parts
    of an image become adjacent images. Folding from target to source undoes it.

    Args:
      terms: terms to add to.
      x: images.
      source: axis from 0 to 2 that becomes `factor` times shorter.
      target: another axis from 0 to 2 that becomes `factor` times longer.
      factor: factor of the size of `source`.

    Raises:
      ValueError: the size of `source` is not a multiple of `factor`, or `source` equals `target`.
    """
    shape = terms.shape(x)
    if source == target:
        raise ValueError(f"axis {source} is both source and target")
    if shape[source] % factor:
        raise ValueError(f"axis {source} has size {shape[source]}: expected a multiple of {factor}")
    rest = shape[source] // factor
    # Adjacent images move; rows and columns move as whole stretches.
    halves = (rest, factor) if source == 0 else (factor, rest)
    split = (*shape[:source], *halves, *shape[source + 1 :])
    moved = source + 1 if source == 0 else source
    stay = [axis for axis in range(5) if axis != moved]
    at = target + 1 if target == 0 else target
    order = (*stay[:at], moved, *stay[at:])
    merged = list(shape)
    merged[source], merged[target] = rest, factor * shape[target]
    parts = terms.add("reshape", [x], shape=split)
    return terms.add(
        "reshape", [terms.add("transpose", [parts], permutation=order)], shape=tuple(merged)
    )


def _folded(terms: Terms, number: int, *, source: int, target: int, halves: bool) -> int | None:
    """Return a convolution of folded images: of both halves of an axis, or of the whole axis."""
    operator, attributes, (x, kernel) = terms[number]
    wanted, size = terms.shape(number), terms.shape(x)[source]
    factor = 2 if halves else size
    if size % factor or wanted[source] % factor or factor < (2 if halves else 3):
        return None
    whole = terms.add(
        operator, [fold(terms, x, source, target, factor), kernel], **dict(attributes)
    )
    parts = list(wanted)
    parts[source], parts[target] = wanted[source] // factor, factor * wanted[target]
    return (
        fold(terms, whole, target, source, factor) if terms.shape(whole) == tuple(parts) else None
    )


def _spaced(terms: Terms, number: int, *, target: int) -> int | None:
    """Return a convolution of all images side by side in one, with zeros between them."""
    operator, attributes, (x, kernel) = terms[number]
    put, (count, *_), axis = dict(attributes), terms.shape(x), target - 1
    size, stride = terms.shape(x)[target], put["strides"][axis]
    reach = put["dilation"][axis] * (terms.shape(kernel)[axis] - 1) + 1
    before, after = put["padding"][axis]
    if count < 2 or before < 0 or after < 0:
        return None
    each = size + before + after
    each += -each % stride
    padding = list(put["padding"])
    padding[axis] = (0, reach - stride)  # gives the last image as many rows as the others
    widths = [(0, 0)] * 4
    widths[target] = (before, each - size - before)
    padded = terms.add("pad", [x], widths=tuple(widths))
    joined = fold(terms, padded, 0, target, count)
    whole = terms.add(operator, [joined, kernel], **{**put, "padding": tuple(padding)})
    apart = fold(terms, whole, target, 0, count)
    return terms.add("slice", [apart], axis=target, start=0, stop=terms.shape(number)[target])


def _stepping(terms: Terms, number: int) -> int | None:
    """Return a 1×1 convolution with strides as one without, of the pixels that it reads."""
    operator, attributes, (x, kernel) = terms[number]
    put, (b, h, w, c) = dict(attributes), terms.shape(x)
    (down, right), pixels = put["strides"], terms.shape(kernel)[:2] == (1, 1)
    if put["padding"] != ((0, 0), (0, 0)) or not pixels or h % down or w % right:
        return None
    found = terms.add("reshape", [x], shape=(b, h // down, down, w // right, right, c))
    for axis in (2, 4):
        found = terms.add("slice", [found], axis=axis, start=0, stop=1)
    found = terms.add("reshape", [found], shape=(b, h // down, w // right, c))
    return terms.add(operator, [found, kernel], **{**put, "strides": (1, 1)})


def _phases(terms: Terms, number: int) -> int | None:
    """Return a convolution with strides as one without, with the pixels of a step as channels."""
    operator, attributes, (x, kernel) = terms[number]
    put, (b, *image, c), (*sizes, _, o) = dict(attributes), terms.shape(x), terms.shape(kernel)
    strides, padding = put["strides"], put["padding"]
    if strides == (1, 1) or put["dilation"] != (1, 1) or put["groups"] > 1:
        return None
    if min(itertools.chain(*padding)) < 0:
        return None
    steps, reads, widths = [], [], [(0, 0)]
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps.append(-(-size // stride))  # of the kernel
        reads.append(terms.shape(number)[axis + 1] - 1 + steps[axis])  # of the image
        before, read = padding[axis][0], stride * reads[axis]
        if read < before:
            return None
        if read < before + image[axis]:  # the last pixels are not read
            x = terms.add("slice", [x], axis=axis + 1, start=0, stop=read - before)
        widths.append((before, max(read - before - image[axis], 0)))
    (h, w), (down, right) = reads, strides
    x = terms.add("pad", [x], widths=(*widths, (0, 0)))
    x = terms.add("reshape", [x], shape=(b, h, down, w, right, c))
    x = terms.add("transpose", [x], permutation=(0, 1, 3, 2, 4, 5))
    x = terms.add("reshape", [x], shape=(b, h, w, down * right * c))
    more = [(0, n * stride - size) for n, stride, size in zip(steps, strides, sizes, strict=True)]
    (h, w) = steps
    kernel = terms.add("pad", [kernel], widths=(*more, (0, 0), (0, 0)))
    kernel = terms.add("reshape", [kernel], shape=(h, down, w, right, c, o))
    kernel = terms.add("transpose", [kernel], permutation=(0, 2, 1, 3, 4, 5))
    kernel = terms.add("reshape", [kernel], shape=(h, w, down * right * c, o))
    none = {"strides": (1, 1), "padding": ((0, 0), (0, 0))}
    return terms.add(operator, [x, kernel], **{**put, **none})


def _halves(terms: Terms, x: int, axis: int) -> list[int] | None:
    """Return both halves along an axis; None if its size is odd."""
    size = terms.shape(x)[axis]
    if size % 2:
        return None
    cuts = ((0, size // 2), (size // 2, size))
    return [terms.add("slice", [x], axis=axis, start=a, stop=b) for a, b in cuts]


def _split(terms: Terms, number: int, *, side: int, axis: int) -> int | None:
    """Return two ops on the halves of one operand's axis, with their results concatenated."""
    operator, attributes, inputs = terms[number]
    put = dict(attributes)
    if put.get("groups", 1) > 1:
        return None
    axis %= len(terms.shape(inputs[side]))
    halves = _halves(terms, inputs[side], axis)
    if halves is None:
        return None
    made = [
        terms.add(operator, [half, inputs[1]] if side == 0 else [inputs[0], half], **put)
        for half in halves
    ]
    return terms.add("concat", made, axis=axis)


def _groups_apart(terms: Terms, number: int) -> int | None:
    """Return two convolutions, each of half of the groups."""
    operator, attributes, inputs = terms[number]
    put = dict(attributes)
    if put["groups"] % 2:
        return None
    put["groups"] //= 2
    images, kernels = (_halves(terms, each, 3) for each in inputs)
    if images is None or kernels is None:
        return None
    made = [terms.add(operator, both, **put) for both in zip(images, kernels, strict=True)]
    return terms.add("concat", made, axis=3)


def _summed(terms: Terms, number: int) -> int | None:
    """Return the sum of two ops, each over half of the summed axis."""
    operator, attributes, (x, y) = terms[number]
    put = dict(attributes)
    if put.get("groups", 1) > 1:
        return None
    last = len(terms.shape(x)) - 1
    left, right = _halves(terms, x, last), _halves(terms, y, len(terms.shape(y)) - 2)
    if left is None or right is None:
        return None
    made = [terms.add(operator, both, **put) for both in zip(left, right, strict=True)]
    return terms.add("add", made)


def _padded(terms: Terms, number: int, *, side: int, axis: int) -> int | None:
    """Return a slice of an op on an operand that is zero-padded along a result axis."""
    operator, attributes, inputs = terms[number]
    put, wider = dict(attributes), list(inputs)
    axis %= len(terms.shape(inputs[side]))
    if put.get("groups", 1) > 1 or not _pad(terms, wider, side, axis):
        return None
    made = terms.add(operator, wider, **put)
    return terms.add("slice", [made], axis=axis, start=0, stop=terms.shape(number)[axis])


def _padded_sums(terms: Terms, number: int) -> int | None:
    """Return an op with zero padding along the summed axis."""
    operator, attributes, inputs = terms[number]
    put, wider = dict(attributes), list(inputs)
    axes = [len(terms.shape(x)) - k for k, x in enumerate(inputs, 1)]
    if put.get("groups", 1) > 1 or not all(_pad(terms, wider, k, a) for k, a in enumerate(axes)):
        return None
    return terms.add(operator, wider, **put)


def _pad(terms: Terms, inputs: list[int], side: int, axis: int) -> bool:
    """Zero-pad one of the inputs to a whole block; return whether any padding was needed."""
    shape = terms.shape(inputs[side])
    more = -shape[axis] % BLOCK
    widths = tuple((0, more if k == axis else 0) for k in range(len(shape)))
    inputs[side] = terms.add("pad", [inputs[side]], widths=widths)
    return more > 0


def _of_conv() -> Iterator[tuple[str, Mutation]]:
    for source, target in itertools.permutations(range(3), 2):
        for halves, how in ((True, "halves of"), (False, "all")):
            name = f"{how} {_AXES[source]} in {_AXES[target]}"
            yield name, partial(_folded, source=source, target=target, halves=halves)
    for target in (1, 2):
        name = f"all images in {_AXES[target]}, zeros between"
        yield name, partial(_spaced, target=target)
    yield "pixels that are stepped over left out", _stepping
    yield "pixels of a step in channels", _phases
    yield "halves of images apart", partial(_split, side=0, axis=0)
    yield "halves of groups apart", _groups_apart


def _of_both() -> Iterator[tuple[str, Mutation]]:
    yield "halves of what is made apart", partial(_split, side=1, axis=-1)
    yield "halves of what is summed apart", _summed
    yield "zeros in what is made", partial(_padded, side=1, axis=-1)
    yield "zeros in what is summed", _padded_sums


def _of_matmul() -> Iterator[tuple[str, Mutation]]:
    yield "halves of rows apart", partial(_split, side=0, axis=-2)
    yield "zeros in rows", partial(_padded, side=0, axis=-2)


# Mutations by operator and name.
MUTATIONS: Mapping[str, Mapping[str, Mutation]] = {
    "conv": {**dict(_of_conv()), **dict(_of_both())},
    "matmul": {**dict(_of_matmul()), **dict(_of_both())},
}
