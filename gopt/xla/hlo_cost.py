"""Cost of single XLA instructions: kind, flop and bytes moved.

Flop are counted as in XLA's cost analysis, with these exceptions. A transcendental function is one
flop, like any other element-wise op. A loop counts all its iterations. Sorts, Fourier transforms,
decompositions and grouped products count as in `gopt.graph.op_costs`, and so do calls of LAPACK.
"""

import math
import re

from gopt.xla.hlo_rules import RULES, elements, window
from gopt.xla.hlo_shapes import Array
from gopt.xla.hlo_text import Computation, Instruction, Module

VIEWS = frozenset(
    ("bitcast", "bitcast-convert", "reshape", "opt-barrier", "add-dependency", "domain")
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
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "mulhi"),
        *("bit-reverse", "collective-reduce", "rng", "rng-bit-generator"),
    )
)
# Opcodes with a computation, which `flops` counts as often as it runs.
_APPLYING = frozenset(("fusion", "map", "reduce", "reduce-window", "select-and-scatter", "scatter"))
# Opcodes that move, create or name data.
_FREE = VIEWS | frozenset(
    (
        *("after-all", "all-gather", "all-to-all", "broadcast", "collective-broadcast"),
        *("collective-permute", "concatenate", "constant", "copy", "dynamic-reshape"),
        *("dynamic-slice", "dynamic-update-slice", "gather", "get-dimension-size"),
        *("get-tuple-element", "infeed", "iota", "outfeed", "pad", "parameter", "partition-id"),
        *("ragged-all-to-all", "recv", "replica-id", "reverse", "rng-get-and-update-state"),
        *("send", "set-dimension-size", "shuffle", "slice", "transpose", "tuple"),
    )
)
# Opcodes that `gopt.sources.hlo` replaces by the ops of their computations.
_CONTROL_FLOW = frozenset(("async-start", "call", "conditional", "while"))
# Opcodes whose work is not counted: JAX emits none of them. Custom calls of other libraries than
# those in `gopt.xla.hlo_rules` count 0, too: their work is not in the text.
UNKNOWN = frozenset(("batch-norm-grad", "batch-norm-inference", "batch-norm-training", "scan"))
# Opcodes whose work is counted.
COUNTED = _ELEMENT_WISE | _APPLYING | _FREE | _CONTROL_FLOW | frozenset(RULES)
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


def array_bytes(array: Array) -> int:
    """Return the bytes of an array, without padding of the layout; small elements are packed."""
    bits = _BITS.get(array.dtype)
    if bits is None:
        digits = re.match(r"[a-z]+(\d+)", array.dtype)
        bits = int(digits[1]) if digits else 0
    return -(-elements(array) * bits // 8)


def is_scalar_constant(instruction: Instruction) -> bool:
    """Return whether an instruction is a scalar literal, which is compiled into its users."""
    return instruction.opcode == "constant" and elements(instruction.arrays[0]) == 1


def flops(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Return the flop of an instruction.

    It is 0 for opcodes without arithmetic, and for those in `UNKNOWN` or of later versions.

    Args:
      module: module of the instruction.
      computation: computation of the instruction.
      instruction: an instruction outside control flow.
    """
    instruction = computation.synchronous(instruction)
    opcode = instruction.opcode
    out = sum(map(elements, instruction.arrays))
    operands = [array for operand in computation.operands(instruction) for array in operand.arrays]

    def called(attribute: str) -> float:
        return total_flops(module, module.called(instruction, attribute))

    match opcode:
        case "fusion":
            return called("calls")
        case "map":
            return elements(instruction.arrays[0]) * called("to_apply")
        case "reduce":
            merged = elements(operands[0]) - elements(instruction.arrays[0])
            return max(merged, 0) * called("to_apply")
        case "reduce-window":
            merged = math.prod(window(instruction, "size")) - 1
            return elements(instruction.arrays[0]) * merged * called("to_apply")
        case "select-and-scatter":
            merged = math.prod(window(instruction, "size")) - 1
            return elements(operands[1]) * (merged * called("select") + called("scatter"))
        case "scatter":
            return elements(operands[-1]) * called("to_apply")
    if opcode in RULES:
        return float(round(RULES[opcode](instruction, operands)))
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
    instruction = computation.synchronous(instruction)
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
