"""The workloads of rewriting papers are the published models: sizes, causality, random values."""

from functools import partial

import jax
import numpy as np
import pytest

from experiments.rewrite.models import MODELS
from gopt.measure.equality import is_telling, random_arguments
from gopt.workloads.rewriting import networks, transformers

pytestmark = pytest.mark.slow

SMALL = {"layers": 1, "length": 5, "hidden": 8, "inner": 12, "heads": 2}
TINY = {
    "transformer": partial(transformers.transformer, causal=True, **SMALL),
    "bare": partial(transformers.bare_transformer, **SMALL),
    "transducer": partial(transformers.transducer, labels=1, predicted=3, vocabulary=7, **SMALL),
    "gated": partial(transformers.transformer, gated=True, **SMALL),
    "bare attention": partial(transformers.bare_attention, layers=8, length=5, hidden=8, heads=2),
    "bare gated": partial(transformers.bare_gated_transformer, **SMALL),
    "bare transducer": partial(transformers.bare_transducer, labels=1, outputs=3, **SMALL),
    "cell": partial(networks.nas_rnn, steps=2, hidden=4),
}


@pytest.mark.parametrize(
    ("name", "parameters", "result"),
    [
        ("ResNet-18", 11_689_512, (1, 1000)),  # torchvision
        ("VGG-19", 143_667_240, (1, 1000)),  # torchvision
        ("NasRNN", 16 * 512**2, (1, 512)),
        ("BERT, matrices alone", 8 * 4 * 1024**2, (64, 1024)),
        ("DALL-E, matrices alone", 8 * (4 * 768**2 + 3 * 768 * 2048), (16, 768)),
        ("T-T", 14 * (12 * 512**2 + 13 * 512) + 2 * (512**2 + 512) + 513 * 128, (80, 20, 128)),
    ],
)
def test_models_have_their_sizes(name, parameters, result):
    case = MODELS[name]()
    leaves = jax.tree_util.tree_leaves_with_path(case.args[0])
    averages = ("mean", "variance")  # which are not trained
    trained = [
        leaf for path, leaf in leaves if all(getattr(k, "key", None) not in averages for k in path)
    ]
    assert sum(leaf.size for leaf in trained) == parameters
    assert jax.eval_shape(case.fn, *case.args).shape == result


@pytest.mark.parametrize("name", TINY)
def test_values_of_random_weights_tell_models_apart(name):
    case = TINY[name]()
    run = jax.jit(case.fn)
    one, other = (run(*random_arguments(case.args, seed)) for seed in (0, 1))
    assert is_telling(one, other)


def test_a_causal_transformer_does_not_see_what_comes_later():
    case = TINY["transformer"]()
    weights, x = random_arguments(case.args)
    run = jax.jit(case.fn)
    before, after = run(weights, x), run(weights, x.at[3].add(1.0))
    np.testing.assert_allclose(before[:3], after[:3], rtol=1e-5)
    assert not np.allclose(before[3:], after[3:])
