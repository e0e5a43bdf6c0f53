"""The same results on any number of devices, of one process or of several."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 240


def run(folder: Path, processes: int, devices: int) -> list[dict[str, np.ndarray]]:
    """Returns what each of some processes found, or fails with what they printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # A proxy can keep processes from each other.
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    # Most of the time is compilation, and results are exact however they are compiled.
    env |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    outputs = [folder / f"{index}.txt" for index in range(processes)]
    began, running = time.monotonic(), []
    try:
        for index, output in enumerate(outputs):
            numbers = map(str, (devices, processes, index, port))
            command = [sys.executable, "-m", "tests.search.process", str(folder), *numbers]
            with output.open("w") as file:
                running.append(
                    subprocess.Popen(command, cwd=ROOT, env=env, stdout=file, stderr=file)
                )
        while time.monotonic() - began < SECONDS:
            codes = [one.poll() for one in running]
            if any(codes) or None not in codes:  # where one has failed, the others wait for it
                break
            time.sleep(0.05)
    finally:
        for one in running:
            one.kill()  # they catch the signal of `terminate`
            one.wait()
    if any(one.returncode for one in running):
        report = [f"after {time.monotonic() - began:.0f} s of {SECONDS}"]
        for index, (one, output) in enumerate(zip(running, outputs, strict=True)):
            report.append(f"process {index} returned {one.returncode}: {output.read_text()}")
        pytest.fail("\n".join(report))
    return [dict(np.load(folder / f"{index}.npz")) for index in range(processes)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run(tmp_path_factory.mktemp("one"), 1, 1)[0]


def test_candidates_and_generations_differ(expected):
    for name in ("['costs'].makespan", "['costs'].peak", "['search'].last.cost"):
        assert len(np.unique(expected[name])) > 4
    assert len(expected["['search'].history"]) == 5


@pytest.mark.parametrize(("processes", "devices"), [(1, 8), (2, 4)])
def test_every_process_finds_the_same_as_one_device(processes, devices, tmp_path, expected):
    for found in run(tmp_path, processes, devices):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name, strict=True)
