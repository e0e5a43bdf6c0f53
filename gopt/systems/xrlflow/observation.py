"""Observations of the agent: a program and all its candidates, as one graph.

Nodes are the terms of the program that do not depend on constants alone, and the constants that
they read. A candidate is nearly the same program, and messages travel one edge further in each
layer of the network. So a candidate is observed as a patch: its new nodes, and the nodes near
enough downstream to receive their messages. It shares all other nodes with the program.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gopt.graph.kinds import KINDS, kind_index
from gopt.rewriting.cost.pricing import Change, replaced
from gopt.rewriting.ir.operators import OPERATORS
from gopt.rewriting.ir.terms import Terms
from gopt.systems.xrlflow.candidates import Candidate

# Kinds of nodes: operators that rules know, and primitives.
NODE_KINDS = ("constant", "argument", *(name for name in OPERATORS if name != "equation"), *KINDS)
_KIND = {name: k for k, name in enumerate(NODE_KINDS[: -len(KINDS)])}
RANK = 4  # observed axes of an array; leading axes beyond that are merged
LARGEST = 2**40  # largest observed size of an axis
FAILED = 1e3  # s, cost of a term that could not be measured


class Observation(NamedTuple):
    """A program and its candidates. `N` nodes, `E` edges, `L` removals, `S` slots.

    Slot 0 is the program as it is. Padding is nodes of slot `S`, edges and removals at the last
    node, and slots outside the mask.

    Attributes:
      kind: int32 `[N]`, kind of each node, an index of `NODE_KINDS`.
      slot: int32 `[N]`, candidate whose patch the node belongs to; 0 for the program.
      sender: int32 `[E]`, node that is read.
      receiver: int32 `[E]`, node that reads it.
      size: float32 `[E, 4]`, axes of the array that is read, aligned to the last one.
      left: int32 `[L]`, nodes of the program that a candidate lacks, or has in its patch.
      left_slot: int32 `[L]`, candidate of each removal.
      change: float32 `[S]`, change of the cost as a share of the program's cost, -1 to 1.
      mask: bool `[S]`, valid slots.
    """

    kind: Any
    slot: Any
    sender: Any
    receiver: Any
    size: Any
    left: Any
    left_slot: Any
    change: Any
    mask: Any


class Size(NamedTuple):
    """Numbers of rows in an observation."""

    nodes: int = 1
    edges: int = 1
    left: int = 1
    slots: int = 1

    def holding(self, other: "Size") -> "Size":
        """Return this size, enlarged where the other is larger to the least bucket that holds it.

        Buckets are 16, 24, 32, 48, 64, 96… so that sizes are few, and padding is little.
        """
        pairs = zip(self, other, strict=True)
        return Size(*(have if need <= have else _bucket(need) for have, need in pairs))


def size_of(observation: Observation) -> Size:
    """Return the size of an observation, with its padding."""
    rows = (observation.kind, observation.sender, observation.left, observation.mask)
    return Size(*map(len, rows))


def observe(
    terms: Terms,
    roots: Sequence[int],
    order: Sequence[int],
    found: Sequence[Candidate],
    price: Callable[[int], float],
    *,
    reach: int | None,
) -> Observation:
    """Return the observation of a program and its candidates, with a node of padding.

    Args:
      terms: terms of the program, and others.
      roots: results of the program.
      order: terms of the program, see `gopt.systems.xrlflow.candidates.in_order`.
      found: candidates of the program; their slots are 1, 2, …
      price: maps a term to its cost, in s.
      reach: number of edges that messages of new nodes travel, the number of layers of the network.
        `None` observes all of each candidate: equal up to rounding, and slower. In both, readers of
        new terms are not simplified, as they may be when the program is rewritten.
    """
    graph = _Graph(terms, roots, order)
    for number, node in graph.index.items():
        graph.link(node, number, {}, {})
    for slot, candidate in enumerate(found, 1):
        graph.add(slot, dict(candidate.by), reach)

    def known(number: int) -> float:
        return min(price(number), FAILED)

    change, total = Change(terms, known, roots), sum(map(known, order)) or 1.0
    more = np.array([0.0, *(change.of(dict(one.by)) for one in found)]) / total
    last = len(graph.kind)
    return Observation(
        kind=np.array([*graph.kind, 0], np.int32),
        slot=np.array([*graph.slot, len(found) + 1], np.int32),
        sender=np.array([*graph.sender, last], np.int32),
        receiver=np.array([*graph.receiver, last], np.int32),
        size=np.array([*graph.size, (0,) * RANK], np.float32),
        left=np.array([*graph.left, last], np.int32),
        left_slot=np.array([*graph.left_slot, len(found) + 1], np.int32),
        change=np.clip(more, -1, 1).astype(np.float32),
        mask=np.ones(len(found) + 1, bool),
    )


def pad(observation: Observation, size: Size) -> Observation:
    """Return an observation with more padding, up to a size that holds it."""
    nodes, edges, left, slots = size
    whole = len(observation.mask)

    def rows(values: np.ndarray, count: int, fill: int) -> np.ndarray:
        more = np.full((count - len(values), *values.shape[1:]), fill, values.dtype)
        return np.concatenate([values, more])

    def of_slots(values: np.ndarray) -> np.ndarray:
        return np.where(values == whole, slots, values).astype(values.dtype)

    return Observation(
        kind=rows(observation.kind, nodes, 0),
        slot=rows(of_slots(observation.slot), nodes, slots),
        sender=rows(observation.sender, edges, nodes - 1),
        receiver=rows(observation.receiver, edges, nodes - 1),
        size=rows(observation.size, edges, 0),
        left=rows(observation.left, left, nodes - 1),
        left_slot=rows(of_slots(observation.left_slot), left, slots),
        change=rows(observation.change, slots, 0),
        mask=rows(observation.mask, slots, False),
    )


class _Graph:
    """Nodes and edges so far, as lists."""

    def __init__(self, terms: Terms, roots: Sequence[int], order: Sequence[int]):
        """Make the nodes of the program, without edges."""
        self.terms = terms
        self.kind, self.slot = list[int](), list[int]()
        self.sender, self.receiver = list[int](), list[int]()
        self.size = list[tuple[int, ...]]()
        self.left, self.left_slot = list[int](), list[int]()
        self._sizes: dict[int, tuple[int, ...]] = {}
        shown = set(roots)
        for number in order:
            if not terms.constant[number]:
                shown.add(number)
                shown.update(terms[number].inputs)
        self.index = {number: k for k, number in enumerate(n for n in order if n in shown)}
        self.readers: dict[int, list[int]] = {number: [] for number in self.index}
        for number in self.index:
            for i in self.inputs(number):
                self.readers[i].append(number)
        self._counts = Counter(roots)
        for number, readers in self.readers.items():
            self._counts[number] += len(readers)
        for number in self.index:
            self._node(number, 0)

    def inputs(self, number: int) -> tuple[int, ...]:
        """Return the terms that a node reads; none for constants, whose values are known before."""
        return () if self.terms.constant[number] else self.terms[number].inputs

    def link(self, node: int, number: int, own: dict[int, int], by: dict[int, int]) -> None:
        """Add the edges to a node from the terms that its term reads.

        Args:
          node: node of the program, or of a patch.
          number: term of the node.
          own: nodes of the patch, by term.
          by: replacement of each replaced term.
        """
        for i in self.inputs(number):
            i = by.get(i, i)
            self.sender.append(own[i] if i in own else self.index[i])
            self.receiver.append(node)
            self.size.append(self._size(i))

    def add(self, slot: int, by: dict[int, int], reach: int | None) -> None:
        """Add the patch of a candidate."""
        new, gone = replaced(by, self._counts, self.inputs)
        near = self._behind(by, set(gone), reach)
        own: dict[int, int] = {}
        for number in (*new, *near):
            own[number] = len(self.kind)
            self._node(number, slot)
        for number, node in own.items():
            self.link(node, number, own, by)
        self.left.extend(self.index[number] for number in (*gone, *near))
        self.left_slot.extend([slot] * (len(gone) + len(near)))

    def _behind(self, by: dict[int, int], gone: set[int], reach: int | None) -> list[int]:
        """Return the remaining nodes that receive messages of new ones; all if `reach` is None."""
        if reach is None:
            return [number for number in self.index if number not in gone]
        far = dict.fromkeys(by, 0)
        queue = deque(by)
        while queue:
            number = queue.popleft()
            if far[number] < reach:
                for reader in self.readers[number]:
                    if reader not in far and reader not in gone:
                        far[reader] = far[number] + 1
                        queue.append(reader)
        return [number for number in far if number not in gone]

    def _node(self, number: int, slot: int) -> None:
        self.kind.append(_kind(self.terms, number))
        self.slot.append(slot)

    def _size(self, number: int) -> tuple[int, ...]:
        found = self._sizes.get(number)
        if found is None:
            shape = self.terms.shapes[number]
            axes = (0,) if isinstance(shape, tuple) else shape.shape
            many = len(axes) - RANK + 1
            if many > 1:
                axes = (math.prod(axes[:many]), *axes[many:])
            found = (0,) * (RANK - len(axes)) + tuple(min(axis, LARGEST) for axis in axes)
            self._sizes[number] = found
        return found


def _kind(terms: Terms, number: int) -> int:
    """Return the kind of a term, as an index of `NODE_KINDS`."""
    if terms.constant[number]:
        return _KIND["constant"]
    operator, _, _ = term = terms[number]
    if operator == "equation":
        primitive = term.attribute("equation").equation.primitive
        return len(_KIND) + kind_index(primitive.name)
    return _KIND[operator]


def _bucket(need: int) -> int:
    size = 16
    while size < need:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size
