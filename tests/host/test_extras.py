"""Without an extra, everything else works, and a use of it names the extra."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gopt.host.extras import optional

ROOT = Path(__file__).parents[2]

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""

HELP = """
import contextlib, io, runpy

for module in {modules!r}:
    sys.argv = [module, "--help"]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        print(module, "has no help")
    except SystemExit as end:
        if end.code or "usage: " not in out.getvalue():
            print(module, "ends with", end.code)
    except ImportError as error:
        print(module, error)
"""

USES = """
import numpy as np
import gopt
from gopt.graph.graph import Op, from_ops
from gopt.cost.hardware import unit_rate_devices
from gopt.heuristics.solvers import cp_sat, metis
from gopt.rewriting.search.saturation import saturation
from gopt.rewriting.search.saturation.egraph import EGraph
from gopt.rewriting.ir.terms import Terms
from gopt.sources.onnx import read_onnx
from gopt.systems import xrlflow
from gopt.workloads.rewriting import onnx_models
from experiments.throughput.peers import compiled, dispatching, evolution, fusions
import experiments.rewrite.peers as peers

problem = gopt.prepare(from_ops([Op(), Op()]), unit_rate_devices(2))
policy = xrlflow.load()
ops, tensors, _ = problem.shape
keys = gopt.Keys(np.zeros((ops, 2)), np.zeros(ops), np.zeros((tensors, 2)))
for use in (
    lambda: metis.partition_by_time(problem),
    lambda: cp_sat.solve(problem, keys, objective="makespan", seconds=1),
    lambda: EGraph(Terms(), []),
    lambda: gopt.rewrite(lambda x: x, np.ones(3), search="tensat"),
    lambda: read_onnx("missing.onnx"),
    lambda: onnx_models.model("VGG-19"),
    lambda: xrlflow.RewriteEnv,
    lambda: xrlflow.agent(*policy),
    lambda: gopt.rewrite(lambda x: x, np.ones(3), search="xrlflow"),
    lambda: compiled.tables,
    lambda: dispatching.tables,
    lambda: fusions.tables,
    lambda: evolution.pymoo(None, (), settings=None, bias=0.7, generations=1, seed=0),
    lambda: peers.onnxruntime.SessionOptions,
    lambda: peers.onnxsim.simplify,
):
    try:
        use()
        print("no error")
    except ImportError as error:
        print(error)
"""

OPTIONAL = {
    *("numba", "pymoo", "saga", "onnxruntime", "onnxsim", "onnx", "jaxonnxruntime"),
    *("egglog", "gymnasium", "ortools", "pymetis"),
}


def lines_of(script: str, packages: set[str] = OPTIONAL) -> list[str]:
    """Return what a script prints where packages cannot be imported."""
    script = BLOCK.format(packages=packages) + script
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def experiments() -> list[str]:
    """Return the modules of experiments that are commands."""
    paths = (ROOT / "experiments").rglob("*.py")
    mains = [path for path in paths if '__name__ == "__main__"' in path.read_text()]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in mains]
    return sorted(name.removesuffix(".__main__") for name in names)


@pytest.mark.slow
def test_every_experiment_shows_its_help_without_the_extras():
    modules = experiments()
    assert len(modules) > 20
    assert lines_of(HELP.format(modules=modules)) == []


@pytest.mark.slow
def test_a_use_of_a_missing_package_names_its_extra():
    def message(extra: str, purpose: str) -> str:
        return f"gopt needs the extra \"{extra}\" for {purpose}: pip install 'gopt-jax[{extra}]'"

    assert lines_of(USES) == [
        *(message("solvers", "METIS"), message("solvers", "CP-SAT")),
        *[message("rewriting", "saturation")] * 2,
        *[message("onnx", "ONNX models")] * 2,
        *[message("xrlflow", "X-RLflow")] * 3,
        *[message("peers", "Numba")] * 3,
        message("peers", "pymoo"),
        *[message("peers", "ONNX Runtime")] * 2,
    ]


@pytest.mark.parametrize("package", ["tyro", "rich"])
def test_experiments_without_a_command_line_name_its_extra(package):
    script = "try:\n    import experiments.large\nexcept ImportError as error:\n    print(error)"
    assert lines_of(script, {package}) == [
        "gopt needs the extra \"cli\" for experiments: pip install 'gopt-jax[cli]'"
    ]


def test_an_optional_module_is_imported_when_it_is_used():
    module = optional("json.tool", "cli", "a test")
    sys.modules.pop("json.tool", None)
    assert "json.tool" not in sys.modules
    assert module.main is sys.modules["json.tool"].main
    with pytest.raises(AttributeError):
        _ = module.missing
    with pytest.raises(ModuleNotFoundError, match=r"gopt\.missing"):
        _ = optional("gopt.missing", "cli", "a test").anything


def test_extras_are_those_of_the_distribution():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cli", "solvers", "rewriting", "xrlflow", "onnx", "peers"} <= {
        *table["optional-dependencies"]
    }
    assert table["name"] == "gopt-jax"
