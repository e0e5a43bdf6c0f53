"""The sequence workloads are the published models: sizes and causality."""

import jax
import numpy as np
import pytest

from gopt.workloads.base import Workload
from gopt.workloads.sequential.gnmt import gnmt
from gopt.workloads.sequential.mamba import mamba
from gopt.workloads.sequential.rnnlm import rnnlm
from gopt.workloads.sequential.wavenet import wavenet
from gopt.workloads.transformers.bert import bert
from gopt.workloads.transformers.gpt2 import gpt2
from gopt.workloads.transformers.switch import switch
from gopt.workloads.transformers.t5 import t5
from gopt.workloads.transformers.transformer_xl import transformer_xl
from gopt.workloads.transformers.vit import vit
from tests.workloads.tiny import compiled

WIKITEXT = {
    "layers": 16,
    "hidden": 410,
    "heads": 10,
    "inner": 2100,
    "vocabulary": 267_735,
    "cutoffs": (20_000, 40_000, 200_000),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "published", "difference"),
    [
        (bert(), 110_106_428, 0),
        (vit(), 86_567_656, 0),
        (gpt2(), 124_439_808, 0),
        (transformer_xl(), 41_055_436, 0),
        (transformer_xl(**WIKITEXT), 151_107_538, 0),
        (t5(), 60_506_624, 0),
        (t5(layers=12, hidden=768, heads=12, inner=3072), 222_903_552, 0),
        (t5(layers=24, hidden=1024, heads=32, width=128, inner=16_384), 2_851_598_336, 0),
        (gnmt(source_length=2, target_length=2), 160_671_297, -9 * 4 * 1024),
        (rnnlm(length=2), 66_000_000, 22_000),
        (wavenet(), 4_570_000, 308),
        (switch(), 619_339_008, 0),
        (mamba(), 129_135_360, 0),
        (mamba(layers=48, hidden=1024), 371_516_416, 0),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else None,
)
def test_parameters_agree_with_the_published_number(workload, published, difference):
    count = workload.num_parameters()
    assert count == published + difference
    assert count == pytest.approx(published, rel=0.01)


def test_the_medium_rnnlm_has_the_published_twenty_million():
    assert round(rnnlm(length=2, hidden=650).num_parameters(), -6) == 20_000_000


def test_the_bert_encoder_with_pooler_has_the_published_number():
    params = bert().variables()["params"]
    encoder = [params["words"], params["Encoder_0"], params["pooler"]]
    assert sum(x.size for x in jax.tree.leaves(encoder)) == 109_482_240


# Inputs, by position, that change no earlier outputs, and inputs that do.
CAUSAL = dict(gpt2=0, transformer_xl=0, transformer_xl_adaptive=0, t5=1, rnnlm=0, gnmt=1)
CAUSAL |= dict(wavenet=0, switch=1, mamba=0)
BOTH_WAYS = dict(t5=0, gnmt=0, switch=0, conformer=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "argument", "causal"),
    [
        *((name, argument, True) for name, argument in CAUSAL.items()),
        *((name, argument, False) for name, argument in BOTH_WAYS.items()),
    ],
)
def test_a_later_input_changes_no_earlier_output(name, argument, causal):
    apply, variables, inputs = compiled(name)
    position = inputs[argument].shape[1] // 2
    changed = list(inputs)
    changed[argument] = inputs[argument].at[:, position].add(3)
    before = jax.tree.leaves(apply(variables, *inputs))[0]
    after = jax.tree.leaves(apply(variables, *changed))[0]
    moved = np.abs(after - before).max(axis=(0, 2)) > 1e-6
    here = position * before.shape[1] // inputs[argument].shape[1]  # outputs may be fewer
    assert moved[here]
    assert not moved[:here].any() if causal else moved[0]
