"""Convert programs to terms."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from gopt.program.equations import Atom, all_equations, aval_of, shape_of
from gopt.program.program import Program
from gopt.rewriting.ir import layout, operators
from gopt.rewriting.ir.terms import Terms

_SAME = frozenset(("stop_gradient", "copy", "copy_p", "name", "optimization_barrier"))
_NAMES = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul"}  # primitive to operator


def terms_of_program(terms: Terms, program: Program, constant: Sequence[bool]) -> tuple[int, ...]:
    """Convert a program to terms, and return its roots.

    Matrix products, image convolutions, slices and concatenations become operators that rules know,
    see `operators`. Transposes and reshapes are added where axes have another order; `layout` moves
    the transposes. Division by a constant becomes multiplication, with possibly different rounding.
    Gradient stops and fusion barriers are dropped: values stay the same, derivatives may not.

    Args:
      terms: terms to add to.
      program: program to convert.
      constant: whether each flat argument is known before the program runs; captured arrays are.
    """
    known: dict[Var, int] = {}
    given = (*program.inputs, *program.constants)
    fixed = (*constant, *[True] * len(program.constants))
    for position, (variable, is_fixed) in enumerate(zip(given, fixed, strict=True)):
        known[variable] = terms.argument(position, shape_of(variable), constant=is_fixed)

    def term_of(atom: Atom) -> int:
        if isinstance(atom, Literal):
            return terms.add("number", value=operators.Literal(atom.val, aval_of(atom).dtype))
        return known[atom]

    for equation in program.equations:
        inputs = [term_of(atom) for atom in equation.invars]
        known |= zip(equation.outvars, _read(terms, equation, inputs), strict=True)
    return tuple(term_of(atom) for atom in program.outputs)


def count_unknown_primitives(terms: Terms, roots: Sequence[int]) -> Counter[str]:
    """Count the primitives of a program that rules do not know.

    A control-flow primitive is one entry, with the number of equations in its bodies.

    Args:
      terms: terms of the program, and others.
      roots: results of the program.
    """
    found = Counter[str]()
    for number in terms.live(roots):
        term = terms[number]
        if term.operator == "equation":
            equation = term.attribute("equation").equation
            inside = sum(1 for _ in all_equations([equation])) - 1
            name = equation.primitive.name
            found[f"{name} of {inside} equations" if inside else name] += 1
    return found


def _read(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    """Convert an equation to terms, and return its results."""
    name = equation.primitive.name
    if name in _SAME:
        return inputs
    if name in _NAMES:
        return [layout.add_untransposed(terms, _NAMES[name], inputs)]
    reader = _READERS.get(name)
    found = reader(terms, equation, inputs) if reader else None
    if found is not None:
        return found
    moved = layout.untransposed_equation(terms, equation, inputs)
    if moved is None:
        return _results(terms, equation, inputs)
    made = _read(terms, moved.equation, moved.inputs)
    return [terms.add("transpose", [each], permutation=moved.permutation) for each in made]


def _results(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    """Add an equation unchanged, and return its results."""
    whole = terms.add("equation", inputs, equation=operators.Equation(equation))
    if not equation.primitive.multiple_results:
        return [whole]
    return [terms.add("result", [whole], index=k) for k in range(len(equation.outvars))]


def _dot_general(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    (contract, batch), (left, right) = equation.params["dimension_numbers"], inputs
    x, y = map(terms.shape, inputs)
    free = [
        tuple(k for k in range(len(shape)) if k not in contract[side] and k not in batch[side])
        for side, shape in enumerate((x, y))
    ]
    batches = tuple(x[k] for k in batch[0])
    length = math.prod(x[k] for k in contract[0])
    rows, columns = (
        tuple(shape[k] for k in axes) for shape, axes in zip((x, y), free, strict=True)
    )
    together = (math.prod(batches),) if batch[0] else ()
    left = terms.add("transpose", [left], permutation=(*batch[0], *free[0], *contract[0]))
    left = terms.add("reshape", [left], shape=(*together, math.prod(rows), length))
    right = terms.add("transpose", [right], permutation=(*batch[1], *contract[1], *free[1]))
    right = terms.add("reshape", [right], shape=(*together, length, math.prod(columns)))
    made = terms.add(
        "matmul",
        [left, right],
        precision=equation.params["precision"],
        dtype=equation.params["preferred_element_type"],
    )
    return [terms.add("reshape", [made], shape=(*batches, *rows, *columns))]


def _conv(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    p, (image, kernel) = equation.params, inputs
    dims = p["dimension_numbers"]
    if len(dims.lhs_spec) != 4 or p["batch_group_count"] != 1 or set(p["lhs_dilation"]) != {1}:
        return None
    # The image and output specifications give batch, channels, then image axes; the kernel's gives
    # outputs, inputs, then image axes.
    last = (0, 2, 3, 1)
    image = terms.add("transpose", [image], permutation=tuple(dims.lhs_spec[k] for k in last))
    kernel = terms.add(
        "transpose", [kernel], permutation=tuple(dims.rhs_spec[k] for k in (2, 3, 1, 0))
    )
    made = terms.add(
        "conv",
        [image, kernel],
        strides=tuple(p["window_strides"]),
        padding=tuple(map(tuple, p["padding"])),
        dilation=tuple(p["rhs_dilation"]),
        groups=p["feature_group_count"],
        precision=p["precision"],
        dtype=p["preferred_element_type"],
    )
    back = np.argsort([dims.out_spec[k] for k in last])
    return [terms.add("transpose", [made], permutation=tuple(map(int, back)))]


def _concatenate(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    return [layout.add_untransposed(terms, "concat", inputs, axis=equation.params["dimension"])]


def _slice(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    (x,), p = inputs, equation.params
    if p["strides"] is not None and set(p["strides"]) != {1}:
        return None
    for axis, (start, stop) in enumerate(zip(p["start_indices"], p["limit_indices"], strict=True)):
        x = layout.add_untransposed(terms, "slice", [x], axis=axis, start=start, stop=stop)
    return [x]


def _split(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    axis, start, parts = equation.params["axis"], 0, []
    for size in equation.params["sizes"]:
        parts.append(
            layout.add_untransposed(
                terms, "slice", inputs, axis=axis, start=start, stop=start + size
            )
        )
        start += size
    return parts


def _transpose(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    permutation = tuple(map(int, equation.params["permutation"]))
    return [terms.add("transpose", inputs, permutation=permutation)]


def _reshape(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    if equation.params["dimensions"] is not None:  # the axes are transposed first
        return None
    return _view(terms, equation, inputs)


def _view(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int]:
    return [terms.add("reshape", inputs, shape=tuple(aval_of(equation.outvars[0]).shape))]


def _broadcast(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    (before,), (after,) = map(aval_of, equation.invars[:1]), map(aval_of, equation.outvars)
    if len(inputs) > 1 or before.size != after.size:
        return None
    return _view(terms, equation, inputs)  # new axes have size 1


def _max(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    if aval_of(equation.outvars[0]).dtype.kind in "bc":  # booleans and complex numbers
        return None
    for x, floor in (inputs, inputs[::-1]):
        term = terms[floor]
        is_zero = term.operator == "number" and _is_zero(term.attribute("value").value)
        if is_zero and terms.shape(x) == aval_of(equation.outvars[0]).shape:
            return [layout.add_untransposed(terms, "relu", [x])]
    return None


def _is_zero(value: np.ndarray) -> bool:
    return not (np.any(value) or np.any(np.signbit(value)))


def _div(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    """Convert division by a constant to multiplication by its inverse, which can be folded.

    The inverse of a divisor near the largest float is zero.
    """
    x, divisor = inputs
    if aval_of(equation.outvars[0]).dtype not in (np.float32, np.float64):
        return None  # excludes integers, and floats too narrow to round twice
    if terms.constant[x] or not terms.constant[divisor]:
        return None
    return [layout.add_untransposed(terms, "mul", [x, terms.add("inverse", [divisor])])]


def _reduce_sum(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    """Convert the sum of stacked arrays to the sum of the arrays."""
    term = terms[inputs[0]]
    axes = tuple(equation.params["axes"])
    if term.operator != "concat" or axes != (term.attribute("axis"),):
        return None
    shape = tuple(aval_of(equation.outvars[0]).shape)
    if any(terms.shape(part)[axes[0]] != 1 for part in term.inputs):
        return None
    parts = (terms.add("reshape", [part], shape=shape) for part in term.inputs)
    return [functools.reduce(lambda x, y: layout.add_untransposed(terms, "add", [x, y]), parts)]


def _sum_pool(terms: Terms, equation: JaxprEqn, inputs: list[int]) -> list[int] | None:
    p = equation.params
    window, strides = p["window_dimensions"], p["window_strides"]
    if len(window) != 4 or {*p["base_dilation"], *p["window_dilation"]} != {1}:
        return None
    around = [(window[k], strides[k], *p["padding"][k]) for k in (0, 3)]
    if around != [(1, 1, 0, 0)] * 2:  # windows over several images or channels
        return None
    padding = tuple(map(tuple, p["padding"][1:3]))
    put = {"window": tuple(window[1:3]), "strides": tuple(strides[1:3]), "padding": padding}
    return [terms.add("sum_pool", inputs, **put)]


_READERS: dict[str, Callable[[Terms, JaxprEqn, list[int]], list[int] | None]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _conv,
    "concatenate": _concatenate,
    "slice": _slice,
    "split": _split,
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _view,
    "broadcast_in_dim": _broadcast,
    "reduce_window_sum": _sum_pool,
    "max": _max,
    "div": _div,
    "reduce_sum": _reduce_sum,
}
