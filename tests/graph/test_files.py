import os

import numpy as np
import pytest

from gopt.graph import padding
from gopt.graph.files import load, save
from gopt.graph.graph import Graph
from tests.graph.test_graph import assert_same, sample, two_ops


@pytest.mark.parametrize(
    "graph",
    [two_ops(), sample(20), padding.pad(sample(7)), padding.stack([sample(3), sample(23)])],
    ids=["unpadded", "random", "padded", "batch"],
)
def test_save_and_load_are_inverse(tmp_path, graph):
    path = tmp_path / "made" / "graph.npz"
    save(path, graph)
    assert_same(load(path), graph)
    assert os.listdir(path.parent) == ["graph.npz"]


def test_truncated_and_damaged_files_raise(tmp_path):
    path = tmp_path / "graph.npz"
    save(path, sample(20))
    whole = path.read_bytes()
    for length in range(0, len(whole), 13):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"graph\.npz is truncated, or not a file that gopt"):
            load(path)
    rng = np.random.default_rng(0)
    raised = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            load(path)  # some bits of an archive mean nothing
        except ValueError:
            raised += 1
    assert raised > 100


def test_foreign_files_raise(tmp_path):
    contents = {
        "text": lambda file: file.write(b"graph { a -> b }"),
        "array": lambda file: np.save(file, np.zeros(3)),
        "arrays": lambda file: np.savez(file, kind=np.zeros(3)),
        "objects": lambda file: np.savez(file, kind=np.array([object()])),
    }
    for name, write in contents.items():
        with open(tmp_path / name, "wb") as file:
            write(file)
        with pytest.raises(ValueError, match=f"{name} is truncated, or not a file that gopt"):
            load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


@pytest.mark.parametrize(
    ("field", "index", "value", "message"),
    [
        ("num_ops", (), 0, "num_ops is 0"),
        ("num_tensors", (), -1, "num_tensors is -1"),
        ("num_uses", (), -1, "num_uses is -1"),
        ("num_uses", (), 99, "expected 99 rows or more"),
        ("dtype", 0, 99, r"dtype\[0\] is 99"),
        ("rank", 0, -1, r"rank\[0\] is -1"),
        ("rank", 0, 1, r"shape\[0\] is .*: expected dimensions, then -1"),
        ("shape", (0, 5), 3, r"shape\[0\] is .*: expected dimensions, then -1"),
        ("shape", (0, 0), -2, r"shape\[0\] is"),
        ("kind", 9, -3, r"kind\[9\] is -3"),
        ("flops", 9, np.nan, r"flops\[9\] is nan"),
        ("producer", 9, 3, r"producer\[9\] is 3: expected 15, for padding"),
        ("tensor", 9, 16, r"tensor\[9\] is 16: expected 15, for padding"),
        ("consumer", 9, 0, r"consumer\[9\] is 0: expected 15, for padding"),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_arrays_that_do_not_fit_each_other_raise(tmp_path, field, index, value, message, batch):
    arrays = {name: np.array(leaf) for name, leaf in padding.pad(two_ops())._asdict().items()}
    arrays[field][index] = value
    graph = Graph(**arrays)
    if batch:
        good = padding.pad(two_ops())
        graph = Graph(*(np.stack(leaves) for leaves in zip(good, graph, strict=True)))
    save(tmp_path / "bad.npz", graph)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g._replace(kind=g.kind.astype(np.float64)),
        lambda g: g._replace(size=g.size.astype(np.float32)),
        lambda g: g._replace(pinned=g.pinned.astype(np.int8)),
        lambda g: g._replace(kind=g.kind[None]),
        lambda g: g._replace(num_ops=g.num_ops[None]),
        lambda g: g._replace(num_uses=np.str_("3")),
        lambda g: Graph(*(leaf[None, None] for leaf in g)),
        lambda g: Graph(*(leaf[None][:0] for leaf in g)),
        lambda g: Graph(*(leaf[None] for leaf in g))._replace(size=np.stack([g.size, g.size])),
    ],
)
def test_arrays_of_other_types_raise(tmp_path, change):
    save(tmp_path / "bad.npz", change(two_ops()))
    with pytest.raises(ValueError, match=r"bad\.npz is truncated, or not a file that gopt saved"):
        load(tmp_path / "bad.npz")


@pytest.mark.parametrize("batch", [False, True])
def test_a_file_with_a_graph_that_is_not_valid_raises(tmp_path, batch):
    good = padding.pad(two_ops())
    bad = good._replace(size=np.full_like(good.size, np.nan))
    if batch:
        bad = Graph(*(np.stack(leaves) for leaves in zip(good, bad, strict=True)))
    save(tmp_path / "bad.npz", bad)
    with pytest.raises(ValueError, match=r"size\[0\] is nan"):
        load(tmp_path / "bad.npz")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "graph.npz"
    save(path, two_ops())

    def fail(file, **_):
        file.write(b"half of a graph")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(KeyboardInterrupt):
        save(path, sample(9))
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "new.npz", sample(9))
    assert os.listdir(tmp_path) == ["graph.npz"]
    assert_same(load(path), two_ops())
