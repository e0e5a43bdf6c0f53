"""Graphs of the REGAL experiment: steps and forward passes of models, split by family."""

from itertools import product

from experiments.harness.graphs import Spec, forward, step

# The three sets share no family. A family is a model, not its blocks: T5 and Switch, a sparse
# T5, are in the test set, BERT and GPT-2 in the training set, and HRNet has the blocks of ResNeXt.
# These sets and the policy's start were chosen on training and validation graphs. XLA's orders are
# an exception: a run on the test set suggested them. All families of the test set had been searched
# before, to test earlier policies. All random networks are training steps. Forward passes have
# little to gain in peak memory, so their samples differ by chance. With them, a policy gained 1.4 %
# on the validation split, without them 2.7 %, by one training each.
TRAIN: tuple[Spec, ...] = (
    *(
        step("squeezenet", batch=batch, size=size)
        for batch, size in ((16, 224), (64, 128), (128, 96))
    ),
    *(
        step("resnext", batch=batch, size=size, blocks=blocks)
        for batch, size, blocks in ((16, 224, (1, 1)), (64, 128, (1, 1, 1, 1)), (64, 224, (2,)))
    ),
    step("resnext", batch=32, blocks=(2, 2, 2, 2)),
    step("resnext", batch=32),
    *(
        step("bert", batch=batch, length=length, hidden=hidden, inner=4 * hidden, layers=1)
        for batch, length, hidden in ((8, 128, 768), (16, 384, 768), (32, 256, 384))
    ),
    step("bert", batch=8, length=512, predictions=512, layers=1),
    step("bert", batch=16, length=256, layers=3),
    step("bert", batch=16, length=256, layers=6),
    forward("bert", batch=32, length=256, layers=2),
    *(
        step("rnnlm", batch=batch, length=length, hidden=hidden, layers=layers)
        for batch, length, hidden, layers in ((20, 5, 650, 2), (320, 3, 200, 1), (80, 4, 1500, 2))
    ),
    step("rnnlm", batch=80, length=10),
    step("rnnlm", batch=80, length=20),
    forward("rnnlm", batch=80, length=5),
    step("randwire", batch=32, stages=1, nodes=7, width=156),
    step("randwire", batch=64, size=128, stages=1, nodes=6, seed=1),
    step("randwire", batch=32, stages=2, nodes=8, seed=2),
    step("efficientnet", batch=64, size=128, blocks=(1,) * 7),
    step("efficientnet", batch=32, blocks=(1,) * 7),
    step("efficientnet", batch=32),
    forward("inception_v3", batch=32),
    forward("nasnet_a", batch=32, cells=1, filters=192),
    forward("amoebanet", batch=32, cells=1),
    step("gnmt", batch=64, source_length=2, target_length=2, layers=2),
    step("gnmt", batch=128, source_length=3, target_length=3, layers=2),
    forward("vit", batch=32, layers=4),
    step("vit", batch=32, layers=2),
    step("vit", batch=32, layers=4),
    step("gpt2", batch=4, length=1024, layers=1),
    step("gpt2", batch=8, length=512, layers=2),
    step("gpt2", batch=8, length=512, layers=4),
    step("gpt2", batch=8, length=512, layers=8),
    *(
        step("random_network", batch=batch, length=length, width=width, layers=layers, seed=seed)
        for seed, ((batch, length, width), layers) in enumerate(
            product(
                ((4, 512, 256), (64, 64, 128), (16, 128, 1024), (128, 32, 512)),
                (5, 6, 7, 9, 11, 13, 15, 18, 22, 27, 33, 40),
            )
        )
    ),
)

VALIDATION: tuple[Spec, ...] = (
    step("unet", batch=8, size=188, depth=2),
    step("unet", batch=8, size=188, depth=3),
    step("unet", batch=2, size=572, depth=4, width=32),
    forward("unet", batch=8, size=188, depth=3),
    forward("densenet", batch=32, blocks=(1, 2, 4, 2)),
    step("densenet", batch=32, blocks=(2, 4)),
    step("densenet", batch=32, blocks=(2, 4, 8, 4)),
    forward("mobilenet_v2", batch=32),
    step("mobilenet_v2", batch=32, blocks=(1,) * 7),
    step("mobilenet_v2", batch=32),
    step("transformer_xl", layers=1),
    step("transformer_xl", batch=16, length=128, memory=128, layers=2),
    step("transformer_xl", batch=16, length=128, memory=128, layers=4),
    step("transformer_xl", batch=16, length=128, memory=128, layers=8),
    step("wavenet", stacks=1, layers=6),
    step("wavenet", batch=2, stacks=2, layers=10),
    step("wavenet"),
    step("graph_network", steps=1),
    step("graph_network", nodes=500, edges=30_000, steps=1),
    step("graph_network", steps=4),
    step("graph_network"),
)

# Each family has forward passes, short training steps, and in some cases a long step. This step has
# the published size, or is cut to about 3 000 ops.
TEST: tuple[Spec, ...] = (
    step("t5", batch=8, layers=1),
    step("t5", batch=32, source_length=128, target_length=128, layers=2),
    step("t5", batch=8),
    step("dlrm"),
    forward("dlrm"),
    forward("ssd", batch=16),
    step("ssd", batch=16),
    forward("shufflenet_v2", batch=32),
    step("shufflenet_v2", batch=128, blocks=(2, 4, 2)),
    step("shufflenet_v2", batch=32),
    forward("hrnet", batch=32, modules=(1, 1, 1), blocks=2),
    step("hrnet", batch=32, modules=(1,), blocks=2),
    step("hrnet", batch=32, modules=(1, 1), blocks=2),
    forward("mlp_mixer", batch=32),
    step("mlp_mixer", batch=32, layers=2),
    step("mlp_mixer", batch=32),
    forward("switch", layers=4),
    step("switch", layers=2),
    step("switch", layers=6),
    forward("conformer", layers=4),
    step("conformer", layers=1),
    step("conformer", layers=4),
    forward("mamba", layers=12),
    step("mamba", layers=3),
    step("mamba", layers=16),
)

# The programs of the test set, optimised by XLA.
TRANSFER: tuple[Spec, ...] = tuple(spec._replace(is_optimised=True) for spec in TEST)

SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST, "transfer": TRANSFER}
