"""Places of graphs that are too large to factorise against those of the exact eigenvectors."""

import numpy as np
import pytest

from gopt.classical import spectral
from gopt.sources import synthetic

COUNT = 3


def of(graph):
    """Sender and receiver of all uses of a graph."""
    tensor = graph.tensor[: int(graph.num_uses)]
    return graph.producer[tensor], graph.consumer[: len(tensor)]


def towers(count, ops):
    """Chains that the program goes through side by side, joined at their ends."""
    sender = np.r_[np.arange(ops - count), np.arange(ops - count, ops - 1)]
    return sender, np.r_[np.arange(count, ops), np.arange(ops - count + 1, ops)]


def step(ops):
    """A chain and its gradient, which reads it backwards."""
    half = np.arange(ops // 2)
    forward, back = half[:-1], half[:-1] + ops // 2
    sender = np.r_[forward, back, ops // 2 - 1, half]
    return sender, np.r_[forward + 1, back + 1, ops // 2, ops - 1 - half]


GRAPHS = {
    "layered": (400, of(synthetic.layered(0, 400))),
    "random": (400, of(synthetic.erdos_renyi(0, 400, density=0.01))),
    "two towers": (5000, towers(2, 5000)),
    "step": (5000, step(5000)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_iterations_come_close_to_the_eigenvectors(monkeypatch, name):
    ops, (sender, receiver) = GRAPHS[name]
    args = sender, receiver, np.ones(len(sender)), np.ones(ops), COUNT
    exact = spectral.spectral_places(*args)
    monkeypatch.setattr(spectral, "EXACT", 10)
    monkeypatch.delattr(spectral.linalg, "eigsh")
    close = spectral.spectral_places(*args)
    for one, other in zip(exact, close, strict=True):
        assert abs(np.corrcoef(one, other)[0, 1]) > 0.999
