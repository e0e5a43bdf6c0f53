"""The experiment of rewriting: its models, its tables, and what is saved."""

import json
from contextlib import redirect_stdout
from functools import partial
from io import StringIO

import jax
import numpy as np
import pytest

from experiments.rewrite import __main__ as experiment
from experiments.rewrite import batches, measuring, peers, searching
from experiments.rewrite.measuring import read_model
from experiments.rewrite.models import MODELS
from gopt.fusion import KernelTimes
from gopt.measure.equality import is_telling, random_arguments
from gopt.program.program import trace_program
from gopt.rewriting import footprint, roofline
from gopt.workloads.cases import Case, floats
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


def numbers(case, leave_out=("mean", "variance")):
    """How many scalars are trained."""
    leaves = jax.tree_util.tree_leaves_with_path(case.args[0])
    return sum(
        leaf.size
        for path, leaf in leaves
        if not {getattr(key, "key", None) for key in path} & set(leave_out)
    )


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
    assert numbers(case) == parameters
    assert jax.eval_shape(case.fn, *case.args).shape == result


@pytest.mark.parametrize("name", MODELS)
def test_all_models_are_read_as_terms(name):
    terms, (root, *_), _ = read_model(MODELS[name]())
    operators = {terms[k].operator for k in terms.live([root])}
    assert operators & {"matmul", "conv"}
    assert not terms.constant[root]


def test_models_of_onnx_have_the_values_that_onnxruntime_gives_them(tmp_path):
    settings = peers.Settings(models=("SqueezeNet",), repeats=1, folder=tmp_path)
    rows = peers.measure("SqueezeNet", {"gopt": lambda _: roofline()}, settings)
    with redirect_stdout(StringIO()) as printed:
        peers.show(rows, settings)
    by_way = {row["way"]: row for row in rows}
    assert list(by_way) == [
        *("XLA", "XLA, plain", "XLA, folded", "gopt", "onnxruntime", "onnxsim, onnxruntime")
    ]
    assert all(row["difference"] < 1e-5 for row in rows)
    assert printed.getvalue().count("SqueezeNet") == 6 == len(set(map(str, rows)))
    with pytest.raises(ValueError, match="expected some of"):
        peers.Settings(models=("GPT",))


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


@pytest.mark.parametrize("cost", experiment.COSTS)
def test_a_run_measures_and_saves(cost, tmp_path, monkeypatch):
    monkeypatch.setitem(experiment.EVERY, "bare", TINY["bare"])
    settings = experiment.Settings(models=("bare",), repeats=1, cost=cost, folder=tmp_path)
    with redirect_stdout(StringIO()):
        experiment.main(settings)
    rows = json.loads((tmp_path / "rewrite.json").read_text())
    assert [row["search"] for row in rows] == list(experiment.SEARCHES)
    for row in rows:
        before, after = row["cost"]
        assert 0 < after <= before
        assert row["refused"].startswith("1 rounds are too few")
        assert row["difference"] <= row["tolerance"]
        assert row["terms"] > 10 and row["search s"] > 0
        assert np.isfinite(row["seconds"]["found"]["process"]).all()
    greedy, backtracking, longer, saturation, forms = (row["cost"][1] for row in rows)
    assert saturation <= backtracking * (1 + 1e-9) <= greedy * (1 + 1e-9)
    assert max(longer, forms) <= backtracking
    for table in ("models.md", "searches.md", "discrepancy.md"):
        assert (tmp_path / table).read_text().count("bare") == (1 if table[0] == "d" else 5)
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert saved["cost"] == cost and saved["versions"]
    assert (tmp_path / "ops.sqlite").exists() == (cost == "measured")


def test_searches_are_measured_each_in_a_process_of_its_own(tmp_path):
    settings = searching.Settings(models=("VGG-19",), searches=("saturation",), folder=tmp_path)
    with redirect_stdout(StringIO()) as printed:
        searching.main(settings)
    assert "nothing is left to be rewritten" in printed.getvalue()
    (row,) = json.loads((tmp_path / "searching.json").read_text())
    before, after = row["cost"]
    assert 0 < after <= before and row["visited"] >= row["terms"] > 60
    assert 0 < row["s"] < 60 and row["bytes"] < 2**30
    (matching,) = json.loads((tmp_path / "matching.json").read_text())
    assert matching["matches"] == 0 < matching["first s"] and matching["again s"] < 60
    assert all("VGG-19" in (tmp_path / f"{t}.md").read_text() for t in ("table", "matching"))
    with pytest.raises(ValueError, match="expected some of"):
        searching.Settings(searches=("luck",))


def test_constants_of_a_model_are_as_cold_as_it_is_large(monkeypatch):
    monkeypatch.setattr(measuring, "measured", lambda times, between: (times, between))
    case, times = TINY["bare"](), KernelTimes()
    program = trace_program(case.fn, *case.args)
    assert measuring.measured_cost(program, times) == (times, footprint(program))


def test_networks_are_measured_by_batches_and_sizes(tmp_path, monkeypatch):
    def tiny(*, batch, size):
        def run(weights, x):
            return (
                jax.nn.relu(
                    jax.lax.conv_general_dilated(
                        x, weights, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                    )
                )
                @ weights[0, 0].T
            )

        return Case(run, (floats(3, 3, 4, 4), floats(batch, size, size, 4)))

    monkeypatch.setitem(batches.NETWORKS, "tiny", tiny)
    settings = batches.Settings(
        models=("tiny",), batches=(1,), sizes=(6,), turns=1, repeats=1, folder=tmp_path
    )
    with redirect_stdout(StringIO()):
        batches.main(settings)
    rows = json.loads((tmp_path / "batches.json").read_text())
    assert [(row["size"], row["batch"], row["search"]) for row in rows] == [
        (6, 1, search) for search in ("backtracking", "backtracking, 300", "partial equivalence")
    ]
    rules, _, forms = rows
    assert forms["cost"][1] <= rules["cost"][1]
    assert forms["difference"] <= forms["tolerance"]
    assert (tmp_path / "table.md").read_text().count("tiny") == 3
    with pytest.raises(ValueError, match=r"batches is \(0,\): expected numbers, 1"):
        batches.Settings(batches=(0,))


def test_unknown_names_raise():
    for wrong in ({"models": ("GPT",)}, {"searches": ("luck",)}, {"cost": "guess"}):
        with pytest.raises(ValueError, match="expected some of"):
            experiment.Settings(**wrong)
