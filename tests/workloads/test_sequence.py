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
from gopt.workloads.transformers.conformer import conformer
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "argument", "causal"),
    [
        ("gpt2", 0, True),
        ("transformer_xl", 0, True),
        ("transformer_xl_adaptive", 0, True),
        ("t5", 1, True),
        ("t5", 0, False),
        ("rnnlm", 0, True),
        ("gnmt", 1, True),
        ("gnmt", 0, False),
        ("wavenet", 0, True),
        ("switch", 1, True),
        ("switch", 0, False),
        ("mamba", 0, True),
        ("conformer", 0, False),
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


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: bert(heads=7), "heads"),
        (lambda: bert(length=513), "length"),
        (lambda: bert(heads=0), "heads"),
        (lambda: vit(heads=7), "heads"),
        (lambda: vit(size=225), "size"),
        (lambda: vit(layers=0), "layers"),
        (lambda: gpt2(heads=7), "heads"),
        (lambda: gpt2(length=1025), "length"),
        (lambda: gpt2(layers=0), "layers"),
        (lambda: transformer_xl(heads=7), "heads"),
        (lambda: transformer_xl(hidden=7, heads=7), "hidden"),
        (lambda: transformer_xl(layers=0), "layers"),
        (lambda: transformer_xl(cutoffs=(20, 10)), r"cutoffs\[1\]"),
        (lambda: transformer_xl(cutoffs=(20, 204)), r"cutoffs\[1\]"),
        (lambda: t5(layers=0), "layers"),
        (lambda: t5(width=0), "width"),
        (lambda: t5(source_length=0), "source_length"),
        (lambda: t5(target_length=0), "target_length"),
        (lambda: rnnlm(length=0), "length"),
        (lambda: rnnlm(layers=0), "layers"),
        (lambda: gnmt(source_length=0), "source_length"),
        (lambda: gnmt(target_length=0), "target_length"),
        (lambda: gnmt(layers=1), "layers"),
        (lambda: wavenet(stacks=4), "layers"),
        (lambda: wavenet(length=100), "length"),
        (lambda: switch(layers=1), "layers"),
        (lambda: switch(experts=0), "experts"),
        (lambda: switch(target_length=0), "target_length"),
        (lambda: switch(capacity_factor=0), "capacity_factor"),
        (lambda: conformer(heads=7), "heads"),
        (lambda: conformer(hidden=7, heads=7), "hidden"),
        (lambda: conformer(length=1602), "length"),
        (lambda: conformer(length=16, text_length=5), "text_length"),
        (lambda: conformer(kernel=0), "kernel"),
        (lambda: mamba(length=100), "length"),
        (lambda: mamba(chunk=0), "chunk"),
        (lambda: mamba(layers=0), "layers"),
    ],
)
def test_bad_sizes_raise(build, field):
    with pytest.raises(ValueError, match=f"^{field}: expected"):
        build()
