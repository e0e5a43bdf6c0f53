"""Models as terms, and costs of their ops."""

from collections.abc import Mapping
from typing import Any

import jax

from gopt.fusion import KernelTimes
from gopt.program.program import Program, trace_program
from gopt.rewriting import OpCost, Terms, footprint, measured, terms_of_program
from gopt.workloads.cases import Case

# Compiler options that disable YNNPACK, the library to which XLA for CPUs leaves products and
# convolutions with their neighbours. It takes twice as long on some machines. There, any rewrite
# that prevents its use looks like a gain.
PLAIN = {"xla_cpu_experimental_ynn_fusion_type": ""}


def read_model(case: Case) -> tuple[Terms, tuple[int, ...], Program]:
    """Return a model as terms, its results in them, and its equations; weights are constants."""
    terms, program = Terms(), trace_program(case.fn, *case.args)
    constant = [k == 0 for k, arg in enumerate(case.args) for _ in jax.tree.leaves(arg)]
    return terms, terms_of_program(terms, program, constant), program


def measured_cost(program: Program, times: KernelTimes) -> OpCost:
    """Return the cost of a model's op as measured, with weights as cold as the model's."""
    return measured(times, bytes_between=footprint(program))


def cost_of_before(row: Mapping[str, Any]) -> str:
    """Return a cell: the cost of the program that was found, as a share of the model's."""
    return f"{row['cost'][1] / row['cost'][0]:.4f}"
