"""Reference for X-RLflow's network: each candidate as a whole, one node at a time, in float64."""

import functools
import math

import numpy as np

from gopt.systems.xrlflow.observation import NODE_KINDS


def said(params, settings, terms, roots, every, price):
    """Return the logits of a program and its candidates, and the value.

    Each candidate in `every` maps replaced terms to their replacements.
    """
    p = params["params"]

    def dense(name, x, tree=p):
        return x @ np.float64(tree[name]["kernel"]) + np.float64(tree[name].get("bias", 0))

    def mlp(name, x):
        for k in range(len(settings.hidden)):
            x = np.tanh(dense(f"Dense_{k}", x, p[name]))
        return dense(f"Dense_{len(settings.hidden)}", x, p[name])

    graphs = []
    for by in ({}, *every):

        def reads(number, by=by):
            inputs = () if terms.constant[number] else terms[number].inputs
            return [by.get(i, i) for i in inputs]

        def sizes(number):
            shape = terms.shapes[number]
            axes = [0] if isinstance(shape, tuple) else list(shape.shape)
            while len(axes) > 4:
                axes = [axes[0] * axes[1], *axes[2:]]
            axes = np.float64([0] * (4 - len(axes)) + axes)
            if settings.sizes == "linear":
                return axes / settings.largest
            return np.log1p(axes) / math.log1p(settings.largest)

        @functools.cache
        def heard(number, layer, reads=reads):
            if layer == 0:
                read = sum((sizes(i) for i in reads(number)), np.zeros(4))
                embed = np.float64(p["Embed_0"]["embedding"][kind(terms, number)])
                return np.maximum(embed + dense("Dense_0", read), 0)
            query, logit = f"Dense_{2 * layer - 1}", f"Dense_{2 * layer}"
            own = dense(query, heard(number, layer - 1))
            near = [dense(query, heard(i, layer - 1)) for i in (*reads(number), number)]
            scores = [leaky(dense(logit, np.concatenate([x, own])), 0.2)[0] for x in near]
            chances = np.exp(np.float64(scores) - max(scores))
            mixed = sum(c * x for c, x in zip(chances / chances.sum(), near, strict=True))
            return leaky(mixed, 0.01)

        nodes, stack = {}, [by.get(root, root) for root in roots]
        while stack:
            number = stack.pop()
            if number not in nodes:
                nodes[number] = heard(number, settings.layers)
                stack.extend(reads(number))
        change = cost_of(nodes, price)
        graphs.append((sum(nodes.values()), len(nodes), change))

    (whole, count, first), summaries = graphs[0], []
    for nodes, _, cost in graphs:
        parts = [nodes]
        if settings.pooling == "difference":
            parts = [nodes - whole, whole / count]
        change = np.arcsinh(1e4 * np.clip((cost - first) / (first or 1), -1, 1))
        if settings.hints:
            parts.append([change])
        name = f"Dense_{2 * settings.layers + 1}"
        summaries.append((np.maximum(dense(name, np.concatenate(parts)), 0), change))
    rows = np.array([each for each, _ in summaries])
    value = mlp("MLP_0", np.concatenate([rows[0], rows.mean(0), rows.max(0)]))[0]
    scores = np.array([mlp("MLP_1", np.concatenate([row, rows[0]]))[0] for row in rows])
    if settings.hints:
        scores -= float(p["trust"]) * np.array([change for _, change in summaries])
    return scores, settings.unit * value


def cost_of(nodes, price):
    return sum(price(number) for number in nodes)


def kind(terms, number):
    operator = terms[number].operator
    if terms.constant[number]:
        name = "constant"
    elif operator == "equation":
        name = terms[number].attribute("equation").equation.primitive.name
        return len(NODE_KINDS) - NODE_KINDS[::-1].index(name) - 1
    else:
        name = operator
    return NODE_KINDS.index(name)


def leaky(x, slope):
    return np.where(np.float64(x) > 0, x, slope * np.float64(x))
