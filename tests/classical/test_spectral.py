"""Places of graphs that are too large to factorise against those of the exact eigenvectors."""

import numpy as np
import pytest

from gopt.classical import spectral
from gopt.sources import synthetic

COUNT = 3


def places(graph):
    uses = int(graph.num_uses)
    tensor = graph.tensor[:uses]
    made = np.bincount(graph.producer, graph.size, minlength=len(graph.flops)).astype(float)
    return spectral.spectral_places(
        graph.producer[tensor], graph.consumer[:uses], graph.size[tensor], made, COUNT
    )


@pytest.mark.parametrize(
    "graph", [synthetic.layered(0, 400), synthetic.erdos_renyi(0, 400, density=0.01)]
)
def test_iterations_come_close_to_the_eigenvectors(monkeypatch, graph):
    exact = places(graph)
    monkeypatch.setattr(spectral, "EXACT", 10)
    monkeypatch.delattr(spectral.linalg, "eigsh")
    close = places(graph)
    for one, other in zip(exact, close, strict=True):
        assert abs(np.corrcoef(one, other)[0, 1]) > 0.99
