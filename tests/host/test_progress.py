"""Progress is shown where people look, and time limits and Ctrl-C end work early."""

import io
import signal
import sys
import threading
import time

import pytest

from gopt.host import progress as module
from gopt.host.progress import Progress, Status, as_text

pytestmark = pytest.mark.small


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def soon(monkeypatch):
    for name in ("_QUIET", "_REFRESH", "_LINE"):
        monkeypatch.setattr(module, name, 0.01)


def work(show=True, steps=4, pause=0.03):
    with Progress("work", show) as progress:
        progress.phase("steps", steps)
        for k in range(steps):
            time.sleep(pause)
            progress.advance(k + 1, f"best {10 - k} s")


def test_a_terminal_has_a_bar_that_goes_away(soon, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    work()
    shown = sys.stderr.getvalue()
    assert "\n" not in shown and shown.endswith("\r")
    *states, last, end = shown.split("\r")
    assert last.strip() == end == ""
    assert any("work: steps  " in s and "━" in s and "best" in s and "left" in s for s in states)


def test_elsewhere_there_are_lines(soon, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    work()
    lines = sys.stderr.getvalue().splitlines()
    assert lines and all(line.startswith("work: steps") for line in lines)
    assert not any("\r" in line or "━" in line for line in lines)


def test_short_work_and_silent_work_show_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    work(pause=0)
    work(show=False)
    assert sys.stderr.getvalue() == ""


def test_a_function_is_called_after_each_step():
    seen = []
    work(show=seen.append, pause=0)
    assert [(s.phase, s.done, s.total) for s in seen] == [("steps", k, 4) for k in range(5)]
    assert seen[0].left is None and seen[2].left >= 0
    assert [s.note for s in seen] == ["", *(f"best {k} s" for k in (10, 9, 8, 7))]


def test_bad_arguments_are_refused():
    for seconds in (0, -1, float("nan"), "1", [1], True):
        with pytest.raises(ValueError, match=r"seconds is .*: expected a positive number"):
            Progress("work", seconds=seconds)
    with pytest.raises(ValueError, match="progress is 'yes': expected True, False or a function"):
        Progress("work", "yes")


def test_time_runs_out(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = Progress("work", False, seconds=5)
    progress.phase("steps", 100)
    assert not progress.is_over and progress.cut == ""
    now[0] += 2
    progress.advance(1)
    assert progress.status.left == 3  # not 198: the limit comes first
    now[0] += 3
    assert progress.is_over and progress.cut == "its 5 s were over"
    assert not Progress("work", False).is_over


def test_the_first_interrupt_ends_a_block_and_the_second_the_program():
    progress = Progress("work", False)
    with progress.interruptible():
        raise KeyboardInterrupt
    assert progress.is_over and progress.cut == "it was interrupted"
    with pytest.raises(KeyboardInterrupt), progress.interruptible():
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="mine"), progress.interruptible():
        raise ValueError("mine")


@pytest.fixture
def handler():
    """Python's own handler of Ctrl-C, which processes in the background may lack."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def press():
    signal.raise_signal(signal.SIGINT)


def test_interrupts_are_noted_once_in_each_part(handler, capfd):
    progress = Progress("work", False)
    with pytest.raises(KeyboardInterrupt), progress.interrupts_noted():
        progress.phase("one")
        assert not progress.is_interrupted
        press()
        assert progress.is_interrupted and progress.is_over
        assert "Ctrl-C again ends the program" in progress.status.note
        assert "work: ends as soon as it can; Ctrl-C again" in capfd.readouterr().err
        progress.search_ended()
        progress.phase("two")
        assert progress.is_over and not progress.is_interrupted and not progress.status.note
        press()
        progress.phase("three")
        press()
        pytest.fail("it went on")


def test_interrupts_end_a_block_at_once(handler):
    progress, done = Progress("work", False), []
    with progress.interrupts_noted():
        with progress.interruptible():
            with progress.interruptible():
                press()
                pytest.fail("it went on")
            done.append("inner")
        done.append("outer")
        with pytest.raises(KeyboardInterrupt):
            press()
    assert done == ["inner", "outer"] and progress.cut_note.startswith("cut short: it was inter")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_nobody_hears_is_noted(handler):
    class Deaf:
        def __del__(self):
            press()

    progress = Progress("work", False)
    with progress.interrupts_noted():
        with progress.interruptible():
            Deaf()
            assert progress.is_over
        with pytest.raises(KeyboardInterrupt):
            press()


def test_another_error_of_an_interrupt_ends_a_block(handler):
    progress = Progress("work", False)
    with progress.interrupts_noted():
        with progress.interruptible():
            raise RuntimeError("a callback failed: KeyboardInterrupt: ")
        assert progress.is_over


def test_interrupts_are_raised_on_request(handler):
    progress = Progress("work", False)
    with progress.interrupts_noted():
        with pytest.raises(KeyboardInterrupt), progress.interrupts_raised():
            press()
        assert progress.is_over


def test_another_handler_is_kept(handler):
    progress, seen = Progress("work", False), []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with progress.interrupts_noted():
            press()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert seen == [1] and not progress.is_over


def test_other_threads_have_no_handlers():
    def enter():
        with Progress("work", False).interrupts_noted():
            done.append(1)

    done = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert done == [1]


def test_text_of_a_status():
    status = Status("gopt.fuse", "search", 30, 120, "best 1.5 ms", 61.2, 183.6)
    assert as_text(status, has_bar=False) == (
        "gopt.fuse: search  30 of 120  best 1.5 ms  1:01 so far  3:04 left"
    )
    assert "━━━━━━╌╌" in as_text(status, has_bar=True)
    assert as_text(Status("a", "", 0, None, "", 0.0, None), has_bar=True) == "a  0:00 so far"
    assert as_text(Status("a", "b", 7, None, "", 0.0, None), has_bar=True).startswith("a: b  7  ")
