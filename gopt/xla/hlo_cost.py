"""Cost of single XLA instructions: kind, flop and bytes moved.

Flop are counted as in XLA's cost analysis, with two exceptions. A transcendental function is one
flop, like any other element-wise op. A loop counts all its iterations.
"""

import math
import re

import numpy as np

from gopt.xla.hlo_shapes import Array
from gopt.xla.hlo_text import Computation, Instruction, Module, names

VIEWS = frozenset(
    ("bitcast", "bitcast-convert", "reshape", "optimization-barrier", "add-dependency", "domain")
)
_SLICES = ("slice", "dynamic-slice", "gather")

_KINDS = {  # opcodes whose JAX primitive has another name
    **{"dot": "dot_general", "convolution": "conv_general_dilated", "select": "select_n"},
    **{"subtract": "sub", "multiply": "mul", "divide": "div", "remainder": "rem", "negate": "neg"},
    **{"maximum": "max", "minimum": "min", "power": "pow", "cosine": "cos", "sine": "sin"},
    **{"exponential": "exp", "exponential-minus-one": "expm1", "log-plus-one": "log1p"},
    **{
        "round-nearest-even": "round",
        "round-nearest-afz": "round",
        "convert": "convert_element_type",
    },
    **{"popcnt": "population_count", "count-leading-zeros": "clz", "broadcast": "broadcast_in_dim"},
    **{"reverse": "rev", "topk": "top_k", "rng": "random_bits", "conditional": "cond"},
    **{"parameter": "input", "all-reduce": "psum", "collective-permute": "ppermute"},
    **{"ragged-all-to-all": "all_to_all", "select-and-scatter": "select_and_scatter_add"},
}
_BY_ROOT = {  # opcodes whose kind depends on the computation that they apply
    "reduce": {
        **{"add": "reduce_sum", "maximum": "reduce_max", "minimum": "reduce_min"},
        **{"multiply": "reduce_prod", "and": "reduce_and", "or": "reduce_or"},
    },
    "reduce-window": {
        **{"add": "reduce_window_sum", "maximum": "reduce_window_max"},
        "minimum": "reduce_window_min",
    },
    "scatter": {
        **{"add": "scatter_add", "multiply": "scatter_mul"},
        **{"minimum": "scatter_min", "maximum": "scatter_max"},
    },
}
_ELEMENT_WISE = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "remainder", "negate", "abs", "sign", "maximum"),
        *("minimum", "power", "sqrt", "rsqrt", "cbrt", "floor", "ceil", "round-nearest-even"),
        *("round-nearest-afz", "clamp", "select", "convert", "reduce-precision", "exponential"),
        *("exponential-minus-one", "log", "log-plus-one", "tanh", "logistic", "sine", "cosine"),
        *("tan", "erf", "atan2", "compare", "and", "or", "xor", "not", "is-finite", "shift-left"),
        *("shift-right-logical", "shift-right-arithmetic", "popcnt", "count-leading-zeros"),
        *("complex", "real", "imag", "stochastic-convert", "all-reduce", "reduce-scatter"),
        *("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"),
    )
)
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}


def kind_of(module: Module, instruction: Instruction) -> str:
    """Return an instruction's name in `gopt.graph.kinds.KINDS`, or its opcode.

    Args:
      module: module of the instruction.
      instruction: instruction.
    """
    opcode = instruction.opcode.removesuffix("-start")
    if opcode == "compare":
        return instruction.attributes["direction"].lower()
    if opcode in _BY_ROOT:
        root = module.called(instruction, "to_apply").root
        default = opcode.replace("-", "_")
        return _BY_ROOT[opcode].get(root.opcode, default)
    return _KINDS.get(opcode, opcode.replace("-", "_"))


def elements(array: Array) -> int:
    """Return the number of elements of an array."""
    return math.prod(array.dims)


def array_bytes(array: Array) -> int:
    """Return the bytes of an array, without padding of the layout."""
    bits = _BITS.get(array.dtype)
    if bits is None:
        digits = re.match(r"[a-z]+(\d+)", array.dtype)
        bits = int(digits[1]) if digits else 0
    return -(-elements(array) * bits // 8)


def is_scalar_constant(instruction: Instruction) -> bool:
    """Return whether an instruction is a scalar literal, which is compiled into its users."""
    return instruction.opcode == "constant" and elements(instruction.arrays[0]) == 1


def flops(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Return the flop of an instruction outside control flow; 0 for opcodes without arithmetic.

    Custom calls count 0: their work is not in the text.

    Args:
      module: module of the instruction.
      computation: computation of the instruction.
      instruction: instruction.
    """
    opcode, attributes = instruction.opcode.removesuffix("-start"), instruction.attributes
    out = sum(map(elements, instruction.arrays))
    operands = [operand.arrays[0] for operand in computation.operands(instruction)]

    def called(attribute: str) -> float:
        return total_flops(module, module.called(instruction, attribute))

    match opcode:
        case "fusion":
            return called("calls")
        case "dot" | "ragged-dot":
            dims = map(int, names(attributes["lhs_contracting_dims"]))
            return 2 * out * math.prod(operands[0].dims[d] for d in dims)
        case "convolution":
            return _convolution_flops(instruction, *operands)
        case "map":
            return elements(instruction.arrays[0]) * called("to_apply")
        case "reduce":
            merged = elements(operands[0]) - elements(instruction.arrays[0])
            return merged * called("to_apply")
        case "reduce-window":
            merged = math.prod(_window(instruction, "size")) - 1
            return elements(instruction.arrays[0]) * merged * called("to_apply")
        case "select-and-scatter":
            merged = math.prod(_window(instruction, "size")) - 1
            return elements(operands[1]) * (merged * called("select") + called("scatter"))
        case "scatter":
            return elements(operands[-1]) * called("to_apply")
        case "sort":
            count = elements(operands[0])
            return count * max(count - 1, 0).bit_length()
    return out if opcode in _ELEMENT_WISE else 0


def total_flops(module: Module, computation: Computation) -> float:
    """Return the flop of all instructions of a computation without control flow.

    Args:
      module: module of the computation.
      computation: computation.
    """
    return sum(flops(module, computation, i) for i in computation.instructions.values())


def bytes_moved(module: Module, computation: Computation, instruction: Instruction) -> float | None:
    """Return the bytes moved by an instruction that touches parts of its operands, otherwise None.

    None means that all operands and results count, each once. Slices and in-place updates move the
    bytes that they touch, also inside a fusion. Constants move nothing.

    Args:
      module: module of the instruction.
      computation: computation of the instruction.
      instruction: instruction.
    """
    opcode = instruction.opcode
    operands = computation.operands(instruction)
    sizes = [sum(map(array_bytes, operand.arrays)) for operand in operands]
    if opcode == "constant":
        return 0
    if opcode == "fusion":
        return _fusion_bytes(module, computation, instruction)
    if opcode in _SLICES:
        return 2 * array_bytes(instruction.arrays[0]) + sum(sizes[1:])
    if opcode == "dynamic-update-slice":
        return 2 * sizes[1] + sum(sizes[2:])
    if opcode == "scatter":
        buffers = len(instruction.arrays)
        reads_old = kind_of(module, instruction) != "scatter"
        return (3 if reads_old else 2) * sum(sizes[-buffers:]) + sizes[buffers]
    return None


def _fusion_bytes(module: Module, computation: Computation, fusion: Instruction) -> float:
    fused = module.called(fusion, "calls")
    users: dict[str, list[Instruction]] = {name: [] for name in fused.instructions}
    for instruction in fused.instructions.values():
        for name in set(instruction.operands):
            users[name].append(instruction)

    def read(instruction: Instruction) -> float:
        whole, parts = sum(map(array_bytes, instruction.arrays)), 0.0
        for user in users[instruction.name]:
            if user.opcode in VIEWS:
                parts += read(user)
            elif user.operands[0] != instruction.name or instruction.name in user.operands[1:]:
                return whole
            elif user.opcode in _SLICES:
                parts += array_bytes(user.arrays[0])
            elif user.opcode != "dynamic-update-slice":
                return whole
        return min(whole, parts)

    def written(instruction: Instruction) -> float:
        if instruction.opcode == "tuple":
            return sum(written(operand) for operand in fused.operands(instruction))
        if instruction.opcode in VIEWS:
            return written(fused.operands(instruction)[0])
        if instruction.opcode == "dynamic-update-slice":
            return array_bytes(fused.operands(instruction)[1].arrays[0])
        return sum(map(array_bytes, instruction.arrays))

    outer = computation.operands(fusion)
    parameters = [i for i in fused.instructions.values() if i.opcode == "parameter"]
    reads = {
        outer[int(p.arguments)].name: read(p)
        for p in parameters
        if not is_scalar_constant(outer[int(p.arguments)])
    }
    return sum(reads.values()) + written(fused.root)


def _convolution_flops(instruction: Instruction, lhs: Array, rhs: Array) -> float:
    """Return two flop per product of a kernel element with an input element, padding excluded."""
    out = instruction.arrays[0]
    labels = [list(part) for part in re.split("_|->", instruction.attributes["dim_labels"])]
    products = elements(out) * rhs.dims[labels[1].index("i")]
    for d in range(len(out.dims) - 2):
        rows, taps, outputs = (
            array.dims[label.index(str(d))]
            for array, label in zip((lhs, rhs, out), labels, strict=True)
        )
        stride, low, spread, dilation = (
            (_window(instruction, field) or [default] * (d + 1))[d]
            for field, default in (("stride", 1), ("pad", 0), ("lhs_dilate", 1), ("rhs_dilate", 1))
        )
        if outputs * taps > 2**27:
            raise ValueError(f"a window of {taps} at {outputs} places: expected fewer")
        position = np.arange(outputs)[:, None] * stride + np.arange(taps) * dilation - low
        inside = (position >= 0) & (position <= (rows - 1) * spread) & (position % spread == 0)
        products = products // outputs * int(inside.sum())
    return 2 * products


def _window(instruction: Instruction, field: str) -> list[int]:
    """Return one number per dimension of a window (the low padding); empty if absent."""
    match = re.search(rf"\b{field}=([\dx_\-]+)", instruction.attributes.get("window", ""))
    return [int(part.split("_")[0]) for part in match[1].split("x")] if match else []
