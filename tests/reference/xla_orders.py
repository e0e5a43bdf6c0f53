"""Reference for XLA's orders: a list that is searched linearly, and plain recursion."""

from gopt.cost.schedule.problem import Problem


class _Graph:
    """A problem with an additional last op that reads all results."""

    def __init__(self, problem: Problem):
        ops, tensors, uses = (int(n) for n in problem[-5:-2])
        self.end = ops
        self.maker = [int(problem.producer[t]) for t in range(tensors)]
        self.size = [int(problem.size[t]) for t in range(tensors)]
        self.is_input = [bool(problem.is_input[op]) for op in range(ops)] + [False]
        self.reads: dict[int, list[int]] = {op: [] for op in range(ops + 1)}
        for use in range(uses):
            self.reads[int(problem.consumer[use])].append(int(problem.tensor[use]))
        self.reads[self.end] = [t for t in range(tensors) if problem.pinned[t]]
        self.running = [op for op in range(ops) if not self.is_input[op]]

    def made(self, op):
        return sum(s for s, maker in zip(self.size, self.maker, strict=True) if maker == op)

    def readers(self, op):
        return [r for r, reads in self.reads.items() if op in {self.maker[t] for t in reads}]

    def makers(self, op):
        return sorted({self.maker[t] for t in self.reads[op]})


def list_order(problem: Problem) -> list[int]:
    """Return the list order: next is the ready op that frees most bytes.

    Ties go to the op with most consumers, then to the one that was added or changed last.
    """
    graph = _Graph(problem)
    order: list[int] = []
    queue: dict[int, tuple[int, int]] = {}  # in order of insertion

    def priority(op):
        freed = 0
        for t in sorted(set(graph.reads[op])):
            left = [r for r in graph.reads if r not in order and t in graph.reads[r]]
            if left == [op] and not graph.is_input[graph.maker[t]]:
                freed += graph.size[t]
        return freed - graph.made(op), len(graph.readers(op))

    def is_ready(op):
        return all(graph.is_input[maker] or maker in order for maker in graph.makers(op))

    while len(order) < len(graph.running):
        for op in graph.running:
            if op not in order and op not in queue and is_ready(op):
                queue[op] = priority(op)
        for t in sorted(set(graph.reads[order[-1]])) if order else ():
            for op in sorted(r for r, reads in graph.reads.items() if t in reads):
                if op in queue and priority(op) != queue[op]:
                    del queue[op]
                    queue[op] = priority(op)
        best = max(queue.values())
        chosen = [op for op, value in queue.items() if value == best][-1]
        del queue[chosen]
        order.append(chosen)
    return order


def post_order(problem: Problem, by_size: bool) -> list[int]:
    """Return the post-order: for each op without consumers, the end last, its producers, then it.

    Producers of an op come in program order. With `by_size`, first come producers with more spare
    consumers, summed over the producer and all paths to it. Ties go to more bytes written.
    """
    graph = _Graph(problem)
    weight = {op: (0, 0) for op in graph.reads}
    for op in graph.running:
        above = [weight[maker] for maker in graph.makers(op)]
        spare = max(len(graph.readers(op)) - 1, 0) + sum(each[0] for each in above)
        total = graph.made(op) + sum(each[1] for each in above)
        so_far = sum(graph.made(other) for other in graph.running if other <= op)
        weight[op] = min(spare, graph.end), min(total, so_far)
    order: list[int] = []

    def visit(op):
        if op in order or graph.is_input[op]:
            return
        makers = graph.makers(op)
        if by_size:
            makers.sort(key=lambda m: (-weight[m][0], -weight[m][1], m))
        for maker in makers:
            visit(maker)
        order.append(op)

    for op in (*graph.running, graph.end):
        if not graph.readers(op):
            visit(op)
    return order[:-1]  # without the additional op
