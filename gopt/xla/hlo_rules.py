"""Flop of XLA instructions that depend on shapes and attributes alone.

The formulas agree with `gopt.graph.op_costs`: a program costs the same before and after lowering.
"""

import math
import re
from collections.abc import Callable, Sequence

from gopt.graph import linear_algebra_costs as linear_algebra
from gopt.graph.product_costs import window_products
from gopt.xla.hlo_shapes import Array
from gopt.xla.hlo_text import Instruction, names

Rule = Callable[[Instruction, Sequence[Array]], float]

# Calls of LAPACK and of GPU solvers, by the routine in their names.
_ROUTINE = re.compile(
    r"(?:lapack_[sdcz]|cusolver_|hipsolver_|cublas_|hipblas_)"
    r"(potrf|getrf|geqrf|geqp3|(?:or|un)gqr|(?:or|un)mqr|(?:sy|he)evd|gesdd|gesvd|gesvdj|geev|gees"
    r"|gehrd|(?:sy|he)trd|trsm|gtsv)\w*$"
)
_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]')


def elements(array: Array) -> int:
    """Return the number of elements of an array."""
    return math.prod(array.dims)


def window(instruction: Instruction, field: str) -> list[int]:
    """Return one number per dimension of a window (the low padding); empty if absent."""
    match = re.search(rf"\b{field}=([\dx_\-]+)", instruction.attributes.get("window", ""))
    return [int(part.split("_")[0]) for part in match[1].split("x")] if match else []


def _axes(instruction: Instruction, attribute: str) -> list[int]:
    return [int(axis) for axis in names(instruction.attributes.get(attribute, ""))]


def _dot(instruction: Instruction, operands: Sequence[Array]) -> float:
    contracted = _axes(instruction, "lhs_contracting_dims")
    out = elements(instruction.arrays[0])
    lhs, _, *_ = operands  # a product has two operands at least
    return 2 * out * math.prod(lhs.dims[axis] for axis in contracted)


def _ragged_dot(instruction: Instruction, operands: Sequence[Array]) -> float:
    ragged = set(_axes(instruction, "lhs_ragged_dims"))
    shared = ragged and ragged <= set(_axes(instruction, "lhs_contracting_dims"))
    groups = operands[2].dims[-1] if shared else 1
    return _dot(instruction, operands) / max(groups, 1)


def _convolution(instruction: Instruction, operands: Sequence[Array]) -> float:
    lhs, rhs = operands
    out = instruction.arrays[0]
    labels = [list(part) for part in re.split("_|->", instruction.attributes["dim_labels"])]
    pairs = 1
    for d in range(len(out.dims) - 2):
        rows, taps, outputs = (
            array.dims[label.index(str(d))]
            for array, label in zip((lhs, rhs, out), labels, strict=True)
        )
        stride, padding, holes, dilation = (
            (window(instruction, field) or [default] * (d + 1))[d]
            for field, default in (("stride", 1), ("pad", 0), ("lhs_dilate", 1), ("rhs_dilate", 1))
        )
        pairs *= window_products(
            rows,
            taps,
            outputs,
            stride=stride,
            padding=padding,
            input_dilation=holes,
            kernel_dilation=dilation,
        )
    features = rhs.dims[labels[1].index("i")] * rhs.dims[labels[1].index("o")]
    return 2 * out.dims[labels[2].index("b")] * features * pairs


def _fft(instruction: Instruction, operands: Sequence[Array]) -> float:
    length = math.prod(_axes(instruction, "fft_length"))
    is_real = instruction.attributes["fft_type"] in ("RFFT", "IRFFT")
    numbers = max(elements(operands[0]), elements(instruction.arrays[0]))
    return (2.5 if is_real else 5) * numbers * math.log2(max(length, 1))


def _sort(instruction: Instruction, operands: Sequence[Array]) -> float:
    (axis,) = _axes(instruction, "dimensions")
    return elements(operands[0]) * math.ceil(math.log2(max(operands[0].dims[axis], 1)))


def _top_k(instruction: Instruction, operands: Sequence[Array]) -> float:
    k = instruction.arrays[0].dims[-1]
    return elements(operands[0]) * max(math.ceil(math.log2(max(k, 1))), 1)


def _cholesky(instruction: Instruction, operands: Sequence[Array]) -> float:
    *batch, _, n = operands[0].dims
    return math.prod(batch) * linear_algebra.cholesky(n)


def _triangular_solve(instruction: Instruction, operands: Sequence[Array]) -> float:
    return linear_algebra.triangular_solve(operands[0].dims[-1], elements(operands[1]))


def _custom_call(instruction: Instruction, operands: Sequence[Array]) -> float:
    """Return the flop of a library call that is known by name, or by its product; 0 for others."""
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    routine = _ROUTINE.match(target)
    if routine:
        return _routine(routine[1], instruction, operands)
    if target == "TopK":
        return _top_k(instruction, operands)
    contracted = _CONTRACTED.search(instruction.attributes.get("backend_config", ""))
    if contracted:
        axes = [int(axis.strip('" ')) for axis in contracted[1].split(",") if axis.strip()]
        out = elements(instruction.arrays[0])
        return 2 * out * math.prod(operands[0].dims[axis] for axis in axes)
    return 0


def _routine(name: str, instruction: Instruction, operands: Sequence[Array]) -> float:
    """Return the flop of a routine of LAPACK."""
    if name == "gtsv":
        *batch, n, columns = operands[3].dims
        return math.prod(batch) * linear_algebra.tridiagonal_solve(n, columns)
    if name == "trsm":
        return _triangular_solve(instruction, operands)
    *batch, m, n = operands[0].dims
    results, config = instruction.arrays, instruction.attributes.get("backend_config", "")
    match name[2:] if name[:2] in ("or", "un", "sy", "he") else name:
        case "potrf":
            each = linear_algebra.cholesky(n)
        case "getrf":
            each = linear_algebra.lu(m, n)
        case "geqrf" | "geqp3":
            each = linear_algebra.householder_qr(m, n)
        case "gqr":
            each = linear_algebra.product_of_reflectors(m, n, operands[1].dims[-1])
        case "mqr":
            rows, columns = operands[2].dims[-2:]
            others = columns if rows == m else rows
            each = linear_algebra.reflections(m, others, operands[1].dims[-1])
        case "evd":
            each = linear_algebra.symmetric_eigen(n, vectors=not _has(config, "mode", "N"))
        case "geev":
            none = _has(config, "compute_left", "N") and _has(config, "compute_right", "N")
            each = linear_algebra.eigen(n, vectors=not none)
        case "gees":
            each = linear_algebra.eigen(n, vectors=not _has(config, "mode", "N"))
        case "gehrd":
            each = linear_algebra.hessenberg(n)
        case "trd":
            each = linear_algebra.tridiagonal(n)
        case _:  # singular values
            bases = [elements(array) for array in results[2:4]]
            is_full = bases == [math.prod(batch) * m**2, math.prod(batch) * n**2]
            vectors = "full" if is_full else "thin"
            vectors = "none" if _has(config, "mode", "N") else vectors
            each = linear_algebra.svd(m, n, vectors=vectors)
    return math.prod(batch) * each


def _has(config: str, field: str, letter: str) -> bool:
    """Return whether a field of a call's settings is a letter, which is written as its code."""
    return re.search(rf"\b{field} = {ord(letter)}\b", config) is not None


RULES: dict[str, Rule] = {
    "cholesky": _cholesky,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "fft": _fft,
    "ragged-dot": _ragged_dot,
    "scaled-dot": _dot,
    "sort": _sort,
    "topk": _top_k,
    "triangular-solve": _triangular_solve,
}
