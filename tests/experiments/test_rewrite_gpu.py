"""The experiment that counts kernels of XLA for GPUs, without its compiler."""

import json
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace

import jax
import pytest

from experiments.rewrite import gpu
from experiments.rewrite.measuring import read_model

MODULE = """HloModule jit_f, is_scheduled=true

%gemm_computation (p0: f32[8,4], p1: f32[4,6]) -> f32[8,6] {
  %p0 = f32[8,4]{1,0} parameter(0)
  %p1 = f32[4,6]{1,0} parameter(1)
  ROOT %dot.1 = f32[8,6]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%fused_add (p2: f32[8,6]) -> f32[8,6] {
  %p2 = f32[8,6]{1,0} parameter(0)
  ROOT %add = f32[8,6]{1,0} add(%p2, %p2)
}

ENTRY %main.1 (x: f32[8,4], a: f32[4,6]) -> (f32[8,6], f32[8,6]) {
  %x = f32[8,4]{1,0} parameter(0)
  %a = f32[4,6]{1,0} parameter(1)
  %gemm = f32[8,6]{1,0} fusion(%x, %a), kind=kCustom, calls=%gemm_computation
  %cublas = (f32[8,6]{1,0}, s8[32]{0}) custom-call(%x, %a), custom_call_target="__cublas$lt$matmul"
  %conv = (f32[8,6]{1,0}, u8[0]{0}) custom-call(%x, %a), custom_call_target="__cudnn$convForward"
  %part = f32[8,6]{1,0} get-tuple-element(%conv), index=0
  %add = f32[8,6]{1,0} fusion(%part), kind=kLoop, calls=%fused_add
  ROOT %tuple = (f32[8,6]{1,0}, f32[8,6]{1,0}) tuple(%gemm, %add)
}
"""


def test_products_are_counted_by_whoever_makes_them():
    assert gpu.count(MODULE) == {"products": 2, "convolutions": 1, "others": 1}


@pytest.mark.parametrize("name", gpu.EXAMPLES)
def test_each_rule_applies_to_its_example(name):
    terms, roots, _ = read_model(gpu.EXAMPLES[name])
    assert gpu.apply_once(name, terms, roots) != roots


def test_rules_and_models_are_counted_before_and_after(tmp_path, monkeypatch):
    def counted(fn, args, where):
        products = str(jax.make_jaxpr(fn)(*args)).count("dot_general")
        return {"products": products, "convolutions": 0, "others": 0}

    described = SimpleNamespace(devices=jax.devices()[:1])
    monkeypatch.setattr(gpu.topologies, "get_topology_desc", lambda **_: described)
    monkeypatch.setattr(gpu, "kernels", counted)
    (tmp_path / "target").write_text("a GPU")
    settings = gpu.Settings(tmp_path / "target", ("BERT, matrices alone",), tmp_path / "out")
    with redirect_stdout(StringIO()):
        gpu.main(settings)
    rows = json.loads((tmp_path / "out" / "gpu.json").read_text())
    counts = {row["name"]: (row["before"]["products"], row["after"]["products"]) for row in rows}
    assert list(counts) == [*gpu.EXAMPLES, "BERT, matrices alone"]
    assert counts["(xa)b = x(ab)"] == (2, 1)
    assert counts["BERT, matrices alone"][0] > counts["BERT, matrices alone"][1]
    assert "| (xa)b = x(ab) | 2, 1 | 0, 0 | 0, 0 |" in (tmp_path / "out/kernels.md").read_text()


def test_unknown_models_are_refused(tmp_path):
    with pytest.raises(ValueError, match="models has 'GPT-9'"):
        gpu.Settings(tmp_path, models=("GPT-9",))
