"""XLA's post-orders by plain recursion."""

from gopt.problem import Problem


def post_order(problem: Problem, by_size: bool) -> list[int]:
    """Ops, but for inputs: from each result, first what it needs, then itself.

    What an op reads comes in program order; by size, what has more readers to spare, itself and
    on all paths that lead to it, comes first, then what makes more.
    """
    ops, tensors, uses = (int(n) for n in problem[-5:-2])
    reads = {op: [] for op in range(ops)}
    readers = {op: set() for op in range(ops)}
    for use in range(uses):
        op, tensor = int(problem.consumer[use]), int(problem.tensor[use])
        maker = int(problem.producer[tensor])
        reads[op].append(tensor)
        readers[maker].add(op)
    size = [0] * ops
    for tensor in range(tensors):
        size[int(problem.producer[tensor])] += int(problem.size[tensor])
    results = [
        op
        for op in range(ops)
        if not readers[op]
        or any(problem.pinned[t] for t in range(tensors) if problem.producer[t] == op)
    ]

    def makers(op):
        return {int(problem.producer[tensor]) for tensor in reads[op]}

    running = [op for op in range(ops) if not problem.is_input[op]]
    weight = {op: (0, 0) for op in range(ops)}
    for op in running:
        above = [weight[maker] for maker in makers(op)]
        spare = max(len(readers[op]) - 1, 0) + sum(each[0] for each in above)
        total = size[op] + sum(each[1] for each in above)
        so_far = sum(size[other] for other in running if other <= op)
        weight[op] = min(spare, ops), min(total, so_far)

    order = []

    def visit(op):
        if op in order or problem.is_input[op]:
            return
        for maker in sorted(
            makers(op), key=lambda m: (-weight[m][0], -weight[m][1], m) if by_size else m
        ):
            visit(maker)
        order.append(op)

    for op in results:
        visit(op)
    return order
