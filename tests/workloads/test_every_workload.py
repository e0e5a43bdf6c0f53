"""What holds of every workload: it is traced from shapes alone, runs, and learns."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.workloads import WORKLOADS
from tests.tiers import slow
from tests.workloads.equations import convolutions
from tests.workloads.tiny import TINY, compiled, stepped, traced, traced_step

LARGE = ("amoebanet", "nasnet_a", "inception_v3")
every_workload = pytest.mark.parametrize("name", TINY)

# Softmax ignores what it is shifted by, so that a bias of the keys has no gradient; nor has one
# that is added to all channels of a patch, which every norm over the channels takes away again; nor
# has one that is added to both scores of a pair, of which the loss takes the difference.
WITHOUT_GRADIENT = (
    "['key']['bias']",
    "['over_patches']['Dense_1']['bias']",
    "['Aggregation_0']['Dense_0']['bias']",
)


def signature(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def shapes(tree):
    return [x.shape for x in jax.tree.leaves(tree)]


def test_no_workload_is_missing_from_the_table():
    assert set(WORKLOADS) <= set(TINY)
    assert all(TINY[name].make.func is make for name, make in WORKLOADS.items())


@pytest.mark.slow
@every_workload
def test_tracing_allocates_no_arrays(name):
    tiny, step = traced(name), traced_step(name)
    assert tiny.allocated == step.allocated == 0
    constants = (*tiny.forward_trace.jaxpr.consts, *step.trace.jaxpr.consts)
    # The ranking model reads the pairs of its four vectors from a table.
    assert all(np.size(x) <= (6 if name == "dlrm" else 1) for x in constants)


@pytest.mark.slow
@every_workload
def test_outputs_and_targets_have_the_shapes_of_the_batch(name):
    tiny = traced(name)
    assert shapes(tiny.forward_trace.out_info) == TINY[name].outputs
    assert shapes(tiny.workload.targets) == TINY[name].targets


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name in TINY if name not in LARGE), *slow(*LARGE)])
def test_a_train_step_returns_what_it_takes_and_a_loss(name):
    variables, momentum, loss = traced_step(name).trace.out_info
    assert signature((variables, momentum)) == signature(traced(name).step_shapes[:2])
    assert signature(loss) == ((), jnp.float32)


@pytest.mark.parametrize(
    "name",
    [
        "squeezenet",
        "unet",
        "mlp_mixer",
        *slow(
            "inception_v3",
            "resnext",
            "nasnet_a",
            "amoebanet",
            "randwire",
            "densenet",
            "mobilenet_v2",
            "efficientnet",
            "mnasnet",
            "shufflenet_v2",
            "hrnet",
        ),
    ],
)
def test_a_step_takes_two_more_for_each_convolution_but_none_for_the_images(name):
    forward, step = (x.jaxpr for x in (traced(name).forward_trace, traced_step(name).trace))
    assert len(convolutions(step)) == 3 * len(convolutions(forward)) - 1


@pytest.mark.slow
@every_workload
def test_outputs_are_finite_and_differ_along_the_batch_and_the_last_axis(name):
    apply, variables, inputs = compiled(name)
    outputs = [np.asarray(x) for x in jax.tree.leaves(apply(variables, *inputs))]
    assert shapes(outputs) == TINY[name].outputs
    chex.assert_tree_all_finite(outputs)
    for x in outputs:
        if x.ndim:
            scale = np.abs(x).max()
            assert np.ptp(x) > 1e-3
            assert np.ptp(x, axis=-1).max() > 1e-2 * scale
            assert np.abs(x[0] - x[1]).max() > 1e-3 * scale


@pytest.mark.slow
@every_workload
def test_a_train_step_has_a_gradient_for_every_parameter(name):
    variables, gradients, loss, _ = stepped(name)
    chex.assert_tree_all_finite((variables, gradients, loss))
    before = compiled(name).variables["params"]
    assert shapes(gradients) == shapes(before) == shapes(variables["params"])
    still = [
        jax.tree_util.keystr(path)
        for path, gradient in jax.tree_util.tree_leaves_with_path(gradients)
        if np.abs(gradient).max() < 1e-7
    ]
    assert all(path.endswith(WITHOUT_GRADIENT) for path in still), still
