"""Sizes that make no workload raise; the first size of each row is wrong."""

import pytest

from gopt.workloads.recommendation.deeprank import deeprank
from gopt.workloads.recommendation.dlrm import dlrm
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

WRONG = {
    bert: (dict(heads=7), dict(length=513), dict(heads=0)),
    vit: (dict(heads=7), dict(size=225), dict(layers=0)),
    gpt2: (dict(heads=7), dict(length=1025), dict(layers=0)),
    transformer_xl: (
        *(dict(heads=7), dict(hidden=7, heads=7), dict(layers=0)),
        *(dict(cutoffs=(20, 10)), dict(cutoffs=(20, 204))),
    ),
    t5: (dict(layers=0), dict(width=0), dict(source_length=0), dict(target_length=0)),
    rnnlm: (dict(length=0), dict(layers=0)),
    gnmt: (dict(source_length=0), dict(target_length=0), dict(layers=1)),
    wavenet: (dict(layers=10, stacks=4), dict(length=100)),
    switch: (dict(layers=1), dict(experts=0), dict(target_length=0), dict(capacity_factor=0)),
    conformer: (
        *(dict(heads=7), dict(hidden=7, heads=7), dict(length=1602)),
        *(dict(text_length=5, length=16), dict(kernel=0)),
    ),
    mamba: (dict(length=100), dict(chunk=0), dict(layers=0)),
    dlrm: (
        *(dict(batch=0), dict(numbers=0), dict(width=0), dict(rows=())),
        *(dict(rows=(3, 0)), dict(bottom=(0, 2)), dict(top=(4, 0))),
    ),
    deeprank: (dict(batch=0), dict(batch=3), dict(contexts=0), dict(hidden=0)),
}


@pytest.mark.parametrize(
    ("build", "sizes"), [(build, row) for build in WRONG for row in WRONG[build]]
)
def test_bad_sizes_raise(build, sizes):
    field = next(iter(sizes))
    with pytest.raises(ValueError, match=rf"^{field}(\[\d\])?: expected"):
        build(**sizes)
