"""The experiment on training steps within budgets."""

import dataclasses

import jax
import pytest

from experiments.harness import command_line
from experiments.memory.__main__ import Settings, main
from experiments.memory.cases import STEPS, checkpointed, plain

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", STEPS)
def test_all_forms_of_a_step_have_one_signature_and_its_values(name):
    if name == "equinox":
        pytest.importorskip("equinox")
    step, forms = plain(name), checkpointed(name)
    expected = jax.eval_shape(step.fn, *step.args)
    assert len(forms) in (3, 6)
    for form in forms.values():
        assert jax.tree.structure(form.args) == jax.tree.structure(step.args)
        assert jax.eval_shape(form.fn, *form.args) == expected
        jaxpr = str(jax.make_jaxpr(form.fn)(*form.args))
        assert "checkpoint" in jaxpr or "remat" in jaxpr


def test_a_step_is_measured_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "start", lambda *_: None)
    settings = Settings(
        steps=("transformer-4",), budgets=(0.5,), evaluations=500, repeats=1, folder=tmp_path
    )
    main(settings)
    main(dataclasses.replace(settings))  # from the file
    assert "transformer-4" in capsys.readouterr().out
    text = (tmp_path / "memory.md").read_text()
    assert all(name in text for name in ("XLA", "blocks, dots", "gopt, 50 %", "DTR, 50 %"))
