"""The experiment that counts kernels of XLA for GPUs, without its compiler."""

import jax
import pytest

from experiments.rewrite.gpu import EXAMPLES, Kernels, Settings, count, main
from experiments.rewrite.measuring import read_model
from gopt.rewriting import RULES, Matcher

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
    assert count(MODULE) == Kernels(products=2, convolutions=1, others=1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_rule_applies_to_its_example(name):
    (rule,) = (rule for rule in RULES if rule.name == name)
    terms, roots, _ = read_model(EXAMPLES[name])
    matcher = Matcher(terms, [rule])
    assert matcher.apply(roots, matcher.matches(roots)[0]) != roots


def test_without_a_gpu_one_has_to_be_described(tmp_path, monkeypatch):
    def none(backend):
        raise RuntimeError(f"no {backend}")

    monkeypatch.setattr(jax, "devices", none)  # whatever this machine has
    with pytest.raises(ValueError, match="no GPU is here: expected a target, which describes one"):
        main(Settings(folder=tmp_path))
    with pytest.raises(ValueError, match="models has 'GPT-9'"):
        Settings(models=("GPT-9",))
