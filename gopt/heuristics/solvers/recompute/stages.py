"""Rows and columns of Checkmate's integer program.

- R says that an op runs in a stage, S that a tensor is held from the stage before.
- U is the memory after each op of each stage. FREE says that an op is the last one to use a tensor
  in a stage, and that the next stage does not hold it.

Source: as in `gopt.heuristics.solvers.recompute.checkmate`.
"""

from gopt.heuristics.solvers.recompute.common import Program


class Stages:
    """Rows and columns of the integer program. Stages and places of ops count from 0.

    Attributes:
      low, high: bounds of each column.
      rows: factors by column, and bounds, of each row.
      prices: ticks by column.
      run: column of R by (stage, op). A missing one is 0, here and below.
      hold: column of S by (stage, tensor).
      memory: columns of U.
    """

    def __init__(self, program: Program, order: list[int], budget: int):
        """Build the program for an order of ops without inputs."""
        self.program, self.order, self.count = program, order, len(order)
        self.place = {op: k for k, op in enumerate(order)}
        self.low: list[int] = []
        self.high: list[int] = []
        self.rows: list[tuple[dict[int, int], int, int]] = []
        every = range(self.count)
        self.run = {
            (stage, op): self._column(int(k == stage), 1)
            for stage in every
            for k, op in enumerate(order[: stage + 1])
            if k == stage or program.repeats[op]
        }
        self.prices = {at: program.ticks[op] for (_, op), at in self.run.items()}
        self.hold = {}
        for tensor in program.tensors:
            is_pinned, first = tensor in program.pinned, self._first(tensor)
            for stage in range(first, self.count + is_pinned):
                is_held = is_pinned or (stage == 0 and tensor in program.given)
                self.hold[stage, tensor] = self._column(int(is_held), 1)
        self.memory: list[int] = []
        for stage in every:
            self._add_stage(stage, budget)

    def runs(self, run: set[tuple[int, int]]) -> list[int]:
        """Return the ops in the order in which they run, inputs first."""
        again = [op for stage in range(self.count) for op in self.order if (stage, op) in run]
        return self.program.starting_runs() + again

    def rounded(self, hold: set[tuple[int, int]]) -> list[int]:
        """Return the fewest runs with which each stage holds some tensors for the next one.

        A tensor that cannot be made again is held until its last use, whatever is asked for.
        """
        program, run = self.program, {(k, op) for k, op in enumerate(self.order)}

        def need(stage: int, tensor: int) -> None:
            maker = program.maker[tensor]
            if (stage, tensor) in hold or (stage, maker) in run:
                return
            if (stage, maker) in self.run:
                run.add((stage, maker))
            else:
                hold.update((k, tensor) for k in range(self._first(tensor), stage + 1))

        for stage in range(self.count):
            for tensor in program.tensors:
                if (stage + 1, tensor) in hold:
                    need(stage, tensor)
            for op in reversed(self.order[: stage + 1]):
                if (stage, op) in run:
                    for tensor in program.reads[op]:
                        need(stage, tensor)
        return self.runs(run)

    def _first(self, tensor: int) -> int:
        """Return the first stage that may hold a tensor from before."""
        return self.place.get(self.program.maker[tensor], -1) + 1

    def _column(self, low: int, high: int) -> int:
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def _row(self, terms: list[tuple[int | None, int]], low: int, high: int) -> None:
        factors: dict[int, int] = {}
        for column, factor in terms:
            if column is not None:
                factors[column] = factors.get(column, 0) + factor
        self.rows.append((factors, low, high))

    def _add_stage(self, stage: int, budget: int) -> None:
        """Add the rows of a stage: what runs and holding need, and memory."""
        program, hold, run = self.program, self.hold, self.run
        ops = self.order[: stage + 1]
        endless = self.count + 2 * len(program.size)

        def available(column: int | None, tensor: int) -> None:
            if column is not None:
                made = run.get((stage, program.maker[tensor]))
                held = hold.get((stage, tensor))
                self._row([(made, 1), (held, 1), (column, -1)], 0, endless)

        for op in ops:
            for tensor in program.reads[op]:
                available(run.get((stage, op)), tensor)
        for tensor in program.tensors:
            available(hold.get((stage + 1, tensor)), tensor)
        held = [(hold.get((stage, tensor)), program.size[tensor]) for tensor in program.tensors]
        left: list[tuple[int | None, int]] = held  # memory before the next op
        for op in ops:
            column = run.get((stage, op))
            if column is None:
                continue
            self.memory.append(self._column(0, budget))
            self._row([*left, (column, program.run_memory(op)), (self.memory[-1], -1)], 0, 0)
            freed = [
                (self._free(stage, op, tensor), -program.size[tensor])
                for tensor in (*program.reads[op], *program.makes[op])
                if tensor not in program.pinned
            ]
            left = [(self.memory[-1], 1), (column, -program.transient[op]), *freed]

    def _free(self, stage: int, op: int, tensor: int) -> int:
        """Return a column of FREE: 1 if an op runs and a tensor is not needed after it."""
        later = [
            self.run[stage, other]
            for other in self.program.readers[tensor]
            if (stage, other) in self.run and self.place[other] > self.place[op]
        ]
        held = self.hold.get((stage + 1, tensor))
        needs = [(column, 1) for column in (*later, *([] if held is None else [held]))]
        free = self._column(0, 1)
        # Hazards: needs, and 1 if the op does not run. Free + hazards >= 1; most * free <= most -
        # hazards.
        run, most = self.run[stage, op], len(needs) + 1
        self._row([(free, 1), (run, -1), *needs], 0, most)
        self._row([(free, most), (run, -1), *needs], -1, most - 1)
        return free
