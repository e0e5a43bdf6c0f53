"""Processes that are killed at random points lose only the unit of work that they were at.

GOPT_KILLS is the number of kills in each kind of work; 50 take minutes.
"""

import multiprocessing
import os
import random
import signal
import time

import pytest

from gopt.learning.checkpoints import Checkpoints
from gopt.measure.rows import Rows
from tests.fuzz import killed

KILLS = int(os.environ.get("GOPT_KILLS", "3"))
SECONDS = 60  # limit of waiting for one process

pytestmark = pytest.mark.slow

forked = multiprocessing.get_context("forkserver")
forked.set_forkserver_preload([killed.__name__])  # processes start in milliseconds


class Working:
    """A process at work, and the numbers of units that it has sent."""

    def __init__(self, name, folder):
        self._reading, writing = forked.Pipe(duplex=False)
        self.process = forked.Process(target=killed.run, args=(name, folder, writing))
        self.process.start()
        writing.close()

    def wait(self):
        """Waits until the first unit is begun."""
        self._reading.poll(SECONDS)

    def end(self):
        """Waits for the end of the process; returns what it sent."""
        self.process.join(SECONDS)
        sent = []
        try:
            while True:
                sent.append(self._reading.recv())
        except EOFError:
            return sent


@pytest.mark.parametrize("name", killed.WORK)
def test_what_is_killed_goes_on_with_the_unit_that_it_was_at(tmp_path, name):
    rng, kills, folders = random.Random(name), 0, 0
    while kills < KILLS:
        folder, code = tmp_path / f"{folders}", None
        least = most = 0  # units that are stored
        while code != 0:
            working = Working(name, folder)
            if kills < KILLS:
                if rng.random() < 0.8:
                    working.wait()
                time.sleep(rng.uniform(0, 0.5))
                working.process.kill()
            sent, code = working.end(), working.process.exitcode
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
            if sent:
                assert least <= sent[0] <= most
                assert sent == list(range(sent[0], sent[0] + len(sent)))
                least, most = sent[-1], sent[-1] + 1
        assert most == killed.UNITS
        folders += 1
    print(f"{name}: {kills} kills in {folders} runs")


def test_writers_that_are_killed_beside_others_lose_no_row(tmp_path):
    path = tmp_path / "rows.sqlite"
    count, writers = 10 * KILLS, 3
    whole = [
        forked.Process(target=killed.append, args=(path, f"{k}", count)) for k in range(writers)
    ]
    for process in whole:
        process.start()
    for kill in range(KILLS):
        process = forked.Process(target=killed.append, args=(path, f"killed {kill}", None))
        process.start()
        time.sleep(random.uniform(0, 0.3))
        process.kill()
        process.join()
    for process in whole:
        process.join(SECONDS + count)
        assert process.exitcode == 0
    found = {name: row for _, name, row in Rows(path, {"version": 1}, "rows").new()}
    for k in range(writers):
        assert [found.pop(f"{k}, {number}") for number in range(count)] == list(range(count))
    for name, number in found.items():  # each killed writer's rows are the first ones
        assert number == 0 or name.replace(f", {number}", f", {number - 1}") in found


def test_a_second_training_run_in_a_folder_is_refused(tmp_path):
    working = Working("training", tmp_path)
    working.wait()
    with pytest.raises(ValueError, match=f"{tmp_path} is in use by another training run"):
        Checkpoints(tmp_path, {})
    working.process.kill()
    working.end()
    Checkpoints(tmp_path, {}).close()
