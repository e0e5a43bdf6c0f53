"""A process that runs functions: results, errors, limits, and its end with its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gopt.measure.worker import Worker, WorkerError
from tests.measure.worker_functions import add, fail, read, unpicklable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


def test_results_come_back(worker):
    assert worker.run(add, 1, 2) == 3
    np.testing.assert_array_equal(worker.run(add, np.arange(10**6), 1), np.arange(10**6) + 1)
    assert worker.run(os.getpid) == worker.run(os.getpid) != os.getpid()


def test_errors_are_told_and_the_process_goes_on(worker):
    number = worker.run(os.getpid)
    with pytest.raises(WorkerError, match="KeyError: 'no such thing'"):
        worker.run(fail)
    with pytest.raises(WorkerError, match="local object"):
        worker.run(unpicklable)
    with pytest.raises(WorkerError, match="EOFError"):
        worker.run(read)
    with pytest.raises(WorkerError, match="SystemExit: 3"):
        worker.run(sys.exit, 3)
    assert worker.run(os.getpid) == number


def test_after_a_limit_or_a_death_the_next_function_has_a_new_process(worker):
    number = worker.run(os.getpid)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
        worker.run(time.sleep, 60, seconds=0.2)
    assert worker.run(os.getpid) != number
    with pytest.raises(WorkerError, match="the worker process died with exit code 3"):
        worker.run(os._exit, 3)
    assert worker.run(add, 1, 2) == 3


@pytest.mark.slow
def test_a_process_that_does_not_start_is_no_fault_of_the_function():
    worker = Worker(fail)
    with pytest.raises(RuntimeError, match="no worker process starts: KeyError") as caught:
        worker.run(add, 1, 2)
    assert not isinstance(caught.value, WorkerError)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_ctrl_c_in_a_terminal_does_not_reach_the_process(worker):
    assert worker.run(os.getpgrp) != os.getpgrp()


def test_an_interrupt_ends_the_process():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # parallel tests ignore it
    worker = Worker()
    number = worker.run(os.getpid)
    timer = subprocess.Popen(["sh", "-c", f"sleep 1; kill -INT {os.getpid()}"])
    with pytest.raises(KeyboardInterrupt):
        worker.run(time.sleep, 60)
    timer.wait()
    signal.signal(signal.SIGINT, before)
    assert worker.run(os.getpid) != number
    worker.close()


# A script without a check of `__name__`, with a worker that waits and a busy one. A forked child
# keeps the pipes to the workers open.
SCRIPT = """
import os, sys, time
from gopt.measure.worker import Worker
from tests.measure import worker_functions

function, begun, *forked = sys.argv[1:]
waiting, busy = Worker(), Worker()
waiting.start()
busy.start()
if forked and os.fork() == 0:
    os.closerange(0, 3)  # the test waits until nobody has the standard error
    time.sleep(60)
    os._exit(0)
busy.run(getattr(worker_functions, function), begun)
"""


def end_with_their_parent(folder, cases):
    """Checks that workers end when their parents are killed; all parents run at once."""
    running = []
    for number, (how, *arguments) in enumerate(cases):
        begun = folder / f"{number}"
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            SCRIPT,
            arguments[0],
            begun,
            *arguments[1:],
        ]
        parent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
        running.append((parent, begun, how))
    try:
        for parent, begun, how in running:
            while not begun.exists():
                assert parent.poll() is None, parent.communicate()
                time.sleep(0.05)
            parent.send_signal(how)
            _, errors = parent.communicate(timeout=20)  # until the workers have closed it, too
            assert parent.returncode == -how and not errors
    finally:
        for parent, *_ in running:
            parent.kill()


def test_workers_end_with_their_parent(tmp_path):
    end_with_their_parent(tmp_path, [(signal.SIGKILL, "busy"), (signal.SIGTERM, "busy")])


@pytest.mark.slow
def test_workers_in_xla_or_beside_forked_processes_end_with_their_parent(tmp_path):
    end_with_their_parent(
        tmp_path, [(signal.SIGKILL, "busy_in_xla"), (signal.SIGKILL, "busy", "forked")]
    )
