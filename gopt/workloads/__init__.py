"""Models of the papers, and random ones, in Flax; tracing them allocates no weights."""

from collections.abc import Callable

from gopt.workloads.architecture_search.amoebanet import amoebanet
from gopt.workloads.architecture_search.nasnet import nasnet_a
from gopt.workloads.architecture_search.random_network import random_network
from gopt.workloads.architecture_search.randwire import randwire
from gopt.workloads.base import Workload
from gopt.workloads.convolutional.densenet import densenet
from gopt.workloads.convolutional.efficientnet import efficientnet
from gopt.workloads.convolutional.inception import inception_v3
from gopt.workloads.convolutional.mnasnet import mnasnet
from gopt.workloads.convolutional.mobilenet_v2 import mobilenet_v2
from gopt.workloads.convolutional.resnext import resnext
from gopt.workloads.convolutional.shufflenet_v2 import shufflenet_v2
from gopt.workloads.convolutional.squeezenet import squeezenet
from gopt.workloads.dense_prediction.hrnet import hrnet
from gopt.workloads.dense_prediction.ssd import ssd
from gopt.workloads.dense_prediction.unet import unet
from gopt.workloads.graph_network import graph_network
from gopt.workloads.recommendation.deeprank import deeprank
from gopt.workloads.recommendation.dlrm import dlrm
from gopt.workloads.sequential.gnmt import gnmt
from gopt.workloads.sequential.mamba import mamba
from gopt.workloads.sequential.rnnlm import rnnlm
from gopt.workloads.sequential.wavenet import wavenet
from gopt.workloads.transformers.bert import bert
from gopt.workloads.transformers.conformer import conformer
from gopt.workloads.transformers.gpt2 import gpt2
from gopt.workloads.transformers.mlp_mixer import mlp_mixer
from gopt.workloads.transformers.switch import switch
from gopt.workloads.transformers.t5 import t5
from gopt.workloads.transformers.transformer_xl import transformer_xl
from gopt.workloads.transformers.vit import vit

WORKLOADS: dict[str, Callable[..., Workload]] = {
    "inception_v3": inception_v3,
    "resnext": resnext,
    "squeezenet": squeezenet,
    "unet": unet,
    "nasnet_a": nasnet_a,
    "amoebanet": amoebanet,
    "randwire": randwire,
    "densenet": densenet,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet": efficientnet,
    "mnasnet": mnasnet,
    "shufflenet_v2": shufflenet_v2,
    "hrnet": hrnet,
    "ssd": ssd,
    "mlp_mixer": mlp_mixer,
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
    "transformer_xl": transformer_xl,
    "t5": t5,
    "switch": switch,
    "conformer": conformer,
    "rnnlm": rnnlm,
    "gnmt": gnmt,
    "mamba": mamba,
    "wavenet": wavenet,
    "dlrm": dlrm,
    "deeprank": deeprank,
    "graph_network": graph_network,
    "random_network": random_network,
}

__all__ = ["WORKLOADS", "Workload", *sorted(WORKLOADS)]
