"""The models of the papers, and random ones, in Flax, traced without allocating weights."""

from collections.abc import Callable

from gopt.workloads.amoebanet import amoebanet
from gopt.workloads.base import Workload
from gopt.workloads.bert import bert
from gopt.workloads.conformer import conformer
from gopt.workloads.deeprank import deeprank
from gopt.workloads.densenet import densenet
from gopt.workloads.dlrm import dlrm
from gopt.workloads.efficientnet import efficientnet
from gopt.workloads.gnmt import gnmt
from gopt.workloads.gpt2 import gpt2
from gopt.workloads.graph_network import graph_network
from gopt.workloads.hrnet import hrnet
from gopt.workloads.inception import inception_v3
from gopt.workloads.mamba import mamba
from gopt.workloads.mlp_mixer import mlp_mixer
from gopt.workloads.mnasnet import mnasnet
from gopt.workloads.mobilenet_v2 import mobilenet_v2
from gopt.workloads.nasnet import nasnet_a
from gopt.workloads.random_network import random_network
from gopt.workloads.randwire import randwire
from gopt.workloads.resnext import resnext
from gopt.workloads.rnnlm import rnnlm
from gopt.workloads.shufflenet_v2 import shufflenet_v2
from gopt.workloads.squeezenet import squeezenet
from gopt.workloads.ssd import ssd
from gopt.workloads.switch import switch
from gopt.workloads.t5 import t5
from gopt.workloads.transformer_xl import transformer_xl
from gopt.workloads.unet import unet
from gopt.workloads.vit import vit
from gopt.workloads.wavenet import wavenet

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
