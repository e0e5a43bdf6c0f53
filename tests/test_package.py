import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import gopt

README = Path(__file__).parent.parent / "README.md"


def test_public_names_are_sorted_and_there():
    assert list(gopt.__all__) == sorted(gopt.__all__, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(gopt, name) for name in gopt.__all__)


def test_import_is_light_and_sets_nothing():
    script = """
import sys
import jax
before = dict(jax.config.values)
import gopt
assert before == dict(jax.config.values), "import sets configuration of JAX"
heavy = ("matplotlib", "orbax", "ortools", "pymetis", "flax", "optax", "jraph", "tyro", "rich")
print(*(name for name in heavy if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_example_of_the_docstring_is_that_of_the_readme():
    lines = gopt.__doc__.splitlines()
    example = [line[4:] for line in lines if line.startswith("    ")]
    assert len(example) == 6
    (first, *_) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    shown = [line.split("  #")[0] for line in first.splitlines()]
    assert [line for line in shown if line in example] == [line for line in example if line]


@pytest.mark.slow
def test_examples_of_the_readme_run(tmp_path, monkeypatch, capsys):
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 7
    monkeypatch.chdir(tmp_path)
    names = {}
    script = "\n".join(examples)
    assert script.count("schedule(model, *shapes)") == 1
    # Fewer than the default take a tenth of the time.
    exec(
        script.replace("schedule(model, *shapes)", "schedule(model, *shapes, evaluations=1000)"),
        names,
    )
    printed = capsys.readouterr().out
    assert "XLA needs" in printed and "peak memory" in printed
    assert (tmp_path / "schedule.png").stat().st_size > 1000
    assert (tmp_path / "memory.png").stat().st_size > 1000
    np.testing.assert_allclose(names["staged"].memory, names["placement"].after.decision.peak, 0.01)
    ordering = names["ordering"]
    after, before = ordering.after.memory, ordering.before.memory
    assert after.without_arguments < 0.8 * before.without_arguments
    args = names["args"]
    np.testing.assert_allclose(names["fastest"](*args), names["step"](*args), rtol=1e-4, atol=1e-6)
    assert names["result"].evaluations[-1] == 5000
    assert (tmp_path / "order.json").exists()
    np.testing.assert_allclose(names["y"], names["model"](names["layers"], args[1]), rtol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, names["result_on_all_devices"], names["result"])
