"""A model of sequences of runs with a number of steps at most, for CP-SAT.

Time is a row of steps, with one run at most in each. A literal says that an op runs at a step,
another that a tensor made before is held over a step. Four rules leave out sequences that others
replace at no more time and memory:

1. A run of an op that may repeat makes a tensor that is read from that run.
2. A tensor is held no longer than until it is read.
3. An op does not run again right after a step over which all its tensors were held.
4. If a run frees nothing, then the next run reads from it, or is of an op later in the program.
   Otherwise the two runs may swap.

An exchange by the rules shortens the sequence or makes it lexicographically smaller, so some
optimum obeys them all. Source: our own.
"""

from collections.abc import Sequence
from typing import Any

from gopt.heuristics.solvers.recompute.common import Program, cp_model


class Steps:
    """Model of sequences with a number of steps at most.

    Attributes:
      model: CP-SAT's model.
      at: literals: an op runs at a step. A missing one is false, here and below.
      held: literals: a tensor made before is held over a step.
      used: literals: an op runs at that step; used steps come first.
    """

    def __init__(
        self,
        program: Program,
        budget: int,
        max_runs: int,
        steps: int,
        least: int,
        below: int,
    ):
        """Build the model.

        Args:
          program: program.
          budget: largest memory, units.
          max_runs: largest number of runs of an op.
          steps: number of steps.
          least: smallest number of runs.
          below: time that a solution stays below, ticks.
        """
        self.model = cp_model.CpModel()
        self.program, self.steps = program, steps
        literal = self.model.new_bool_var
        before = _ancestors(program)
        after = {op: sum(op in others for others in before.values()) for op in program.ops}
        # A run of an op that may repeat is read from; other ops run once, before what reads them.
        last = {op: 2 if program.repeats[op] else 1 + after[op] for op in program.ops}
        self.at = {
            (op, step): literal("")
            for op in program.ops
            for step in range(len(before[op]), steps - last[op] + 1)
        }
        first = {t: len(before[op]) + 1 for op in program.ops for t in program.makes[op]}
        self.held = {
            (tensor, step): literal("")
            for tensor in program.tensors
            for step in range(first.get(tensor, 0), steps + (tensor in program.pinned))
        }
        for tensor in program.pinned.intersection(program.given):
            self.model.add(self.held[tensor, 0] == 1)
        self.used = [literal("") for _ in range(steps)]
        for step in range(steps):
            self._add_step(step, budget)
        for op in program.ops:
            self._add_op(op, max_runs)
        self._add_swaps(before)
        cost = sum(program.ticks[op] * runs for (op, _), runs in self.at.items())
        self.model.add(sum(self.used) >= least)
        self.model.add(cost >= program.once)
        self.model.add(cost < below)
        self.model.minimize(cost)

    def runs(self, solver: Any) -> list[int]:
        """Return the ops of the solution in the order in which they run."""
        return [
            op
            for step, op in sorted((s, op) for (op, s) in self.at if solver.value(self.at[op, s]))
        ]

    def hint(self, runs: Sequence[int]) -> None:
        """Start the search from a sequence that fits into the steps; inputs are ignored."""
        program = self.program
        ops = [op for op in runs if op not in program.inputs]
        known = {(op, step) for step, op in enumerate(ops)}
        held = set()
        for tensor in program.tensors:
            maker, readers = program.maker[tensor], program.readers[tensor]
            last = self.steps if tensor in program.pinned else -1
            for step in reversed(range(len(ops))):
                if ops[step] == maker:
                    held |= {(tensor, k) for k in range(step + 1, last + 1)}
                    last = -1
                elif ops[step] in readers:
                    last = max(last, step)
            held |= {(tensor, k) for k in range(last + 1)}  # of an input
        for key, run in self.at.items():
            self.model.add_hint(run, key in known)
        for key, literal in self.held.items():
            self.model.add_hint(literal, key in held)
        for step, literal in enumerate(self.used):
            self.model.add_hint(literal, step < len(ops))

    def _some(self, literals: dict[tuple[int, int], Any], *keys: tuple[int, int]) -> list[Any]:
        return [literals[key] for key in keys if key in literals]

    def _add_step(self, step: int, budget: int) -> None:
        """Add the constraints of one step: one run, its inputs, and memory."""
        program, model = self.program, self.model
        runs = {op: self.at[op, step] for op in program.ops if (op, step) in self.at}
        model.add_exactly_one([*runs.values(), ~self.used[step]])
        if step:
            model.add_implication(self.used[step], self.used[step - 1])
        memory = sum(program.run_memory(op) * run for op, run in runs.items())
        for tensor in program.tensors:
            if (tensor, step) not in self.held:
                continue
            held = self.held[tensor, step]
            memory += program.size[tensor] * held
            maker = program.maker[tensor]
            if maker in runs:  # a run again frees what it makes anew
                model.add_at_most_one(held, runs[maker])
            made = self._some(self.at, (maker, step - 1))
            if step or tensor not in program.given:
                model.add_bool_or(*self._some(self.held, (tensor, step - 1)), *made, ~held)
            longer = self._some(self.held, (tensor, step + 1))
            if tensor in program.pinned:
                model.add_bool_and(longer).only_enforce_if(held)
            else:
                read = [runs[op] for op in program.readers[tensor] if op in runs]
                model.add_bool_or(*longer, *read, ~held)
        for op, run in runs.items():
            for tensor in program.reads[op]:
                model.add_bool_or(*self._some(self.held, (tensor, step)), ~run)
        model.add(memory <= budget)

    def _add_op(self, op: int, max_runs: int) -> None:
        """Add the constraints of one op: number of runs, and what is held after each."""
        program, model = self.program, self.model
        runs = {step: self.at[op, step] for step in range(self.steps) if (op, step) in self.at}
        model.add(sum(runs.values()) >= 1)
        model.add(sum(runs.values()) <= (max_runs if program.repeats[op] else 1))
        for step, run in runs.items():
            for tensor in program.makes[op]:
                if tensor in program.pinned:
                    model.add_bool_and(self.held[tensor, step + 1]).only_enforce_if(run)
            if not program.repeats[op]:
                continue
            held = [(tensor, step + 1) for tensor in program.makes[op]]
            model.add_bool_or(*self._some(self.held, *held), ~run)
            if step + 1 in runs:
                model.add_at_most_one(run, runs[step + 1])
                held = [(tensor, step) for tensor in program.makes[op]]
                if all(key in self.held for key in held):
                    model.add_bool_or(~runs[step + 1], *(~self.held[key] for key in held))

    def _add_swaps(self, before: dict[int, set[int]]) -> None:
        """Add rule 4."""
        program = self.program
        made_by = {op: program.read_from(op) for op in program.ops}
        for op in program.ops:
            follows = [
                other
                for other in program.ops
                if other > op
                or other in made_by[op]
                or op in made_by[other]
                or program.transient[op] > program.transient[other]
            ]
            kept = program.reads[op] + (program.makes[op] if len(program.makes[op]) > 1 else [])
            for step in range(self.steps - 1):
                keys = [(tensor, step + 1) for tensor in kept]
                if (op, step) in self.at and all(key in self.held for key in keys):
                    self.model.add_bool_or(
                        ~self.at[op, step],
                        ~self.used[step + 1],
                        *self._some(self.at, *((other, step + 1) for other in follows)),
                        *(~self.held[key] for key in keys),
                    )


def _ancestors(program: Program) -> dict[int, set[int]]:
    """Return the ops, without inputs, that run before each op."""
    before: dict[int, set[int]] = {}
    for op in program.ops:
        makers = program.read_from(op)
        before[op] = makers.union(*(before[maker] for maker in makers))
    return before
