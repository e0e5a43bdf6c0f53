"""PyTorch's budget of activation memory, on the transformers: saved bytes and flop of products."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from experiments.memory.cases import STEPS
from experiments.memory.transformer import HEADS, VOCABULARY
from gopt.host.extras import optional

_torch = partial(optional, extra="torch", purpose="PyTorch's budget of activation memory")
torch, functional, fx = _torch("torch"), _torch("torch.nn.functional"), _torch("torch.fx.node")
config, aot = _torch("torch._functorch.config"), _torch("torch._functorch.aot_autograd")
partitioners = _torch("torch._functorch.partitioners")
decompositions = _torch("torch._inductor.decomposition")
fake, counter = _torch("torch._subclasses.fake_tensor"), _torch("torch.utils.flop_counter")

TRANSFORMERS = tuple(name for name in STEPS if name.startswith("transformer-"))


def compare(name: str, budgets: tuple[float, ...]) -> list[dict[str, Any]]:
    """Return a row for each budget of PyTorch; a budget of 1 is what it does by default.

    Its partitioner minimises the bytes that pass from the forward to the backward pass, for the
    primitives of its compiler. With a budget it also chooses what to recompute in the backward
    pass. Nothing is computed. Bytes are of distinct saved arrays but arguments and their views.
    Flop are of products.

    Args:
      name: name of a transformer of `experiments.memory.cases`.
      budgets: shares of the bytes that are saved by default, as PyTorch estimates them.
    """
    return [
        {"step": name, "budget": share} | _partitioned(name, share) for share in (1.0, *budgets)
    ]


def _partitioned(name: str, share: float) -> dict[str, float]:
    found: dict[str, float] = {}

    def partition(joint: Any, inputs: Any, **options: Any) -> Any:
        parts = partitioners.min_cut_rematerialization_partition(joint, inputs, **options)
        found["saved"] = _saved(parts[0], options["num_fwd_outputs"])
        found["flop"] = sum(_flop(part) for part in parts)
        return parts

    def same(module: Any, _: Any) -> Any:
        return module.forward

    loss, args = _transformer(**STEPS[name].keywords)  # type: ignore[attr-defined]
    with config.patch(activation_memory_budget=share), fake.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(arg) for arg in args]
        aot.aot_function(
            loss,
            fw_compiler=same,
            bw_compiler=same,
            partition_fn=partition,
            decompositions=decompositions.select_decomp_table(),
            num_params_buffers=len(args) - 1,
        )(*fakes)
    return found


def _saved(forward: Any, num_outputs: int) -> int:
    """Return the bytes that a forward pass saves for the backward pass."""
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    given = _storages(node for node in forward.graph.nodes if node.op == "placeholder")
    saved = _storages(output.args[0][num_outputs:])
    return sum(size for storage, size in saved.items() if storage not in given)


def _storages(nodes: Iterable[Any]) -> dict[int, int]:
    """Return the bytes of the storages of some nodes, by their addresses."""
    storages = [node.meta["val"].untyped_storage() for node in nodes]
    return {storage._cdata: storage.nbytes() for storage in storages}


def _flop(module: Any) -> int:
    total = 0
    for node in module.graph.nodes:
        count = counter.flop_registry.get(getattr(node.target, "overloadpacket", None))
        if count is not None:
            args, options = fx.map_arg((node.args, node.kwargs), lambda other: other.meta["val"])
            total += count(*args, **options, out_val=node.meta["val"])
    return total


def _transformer(layers: int, width: int, batch: int, length: int) -> tuple[Any, list[Any]]:
    """Return the loss of `experiments.memory.transformer` in PyTorch, its parameters and tokens."""

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-5) * scale + bias

    def block(
        x: Any, query: Any, key: Any, value: Any, out: Any, up: Any, down: Any, *s: Any
    ) -> Any:
        h = norm(x, *s[:2])
        q, k, v = ((h @ p).reshape(batch, length, HEADS, -1) for p in (query, key, value))
        scores = torch.einsum("blhd,bmhd->bhlm", q, k) / (width // HEADS) ** 0.5
        scores = torch.where(torch.ones(length, length, dtype=torch.bool).tril(), scores, -1e9)
        mixed = torch.einsum("bhlm,bmhd->blhd", scores.softmax(-1), v)
        x = x + mixed.reshape(x.shape) @ out
        return x + functional.gelu(norm(x, *s[2:]) @ up, approximate="tanh") @ down

    def loss(words: Any, places: Any, scale: Any, bias: Any, *others: Any) -> Any:
        *blocks, tokens = others
        x = words[tokens] + places
        for k in range(0, len(blocks), len(shapes)):
            x = block(x, *blocks[k : k + len(shapes)])
        logits = norm(x, scale, bias) @ words.T
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    shapes = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)] + [(width,)] * 4
    outer = [(VOCABULARY, width), (length, width), (width,), (width,)]
    params = [torch.empty(s, requires_grad=True) for s in (*outer, *(shapes * layers))]
    return loss, [*params, torch.zeros(batch, length, dtype=torch.int64)]
