"""Progress of long work, shown while it runs, and a time limit for it.

    with Progress("gopt.search", True, seconds=60) as progress, progress.interrupts_noted():
        progress.phase("generations", 200)
        with progress.interruptible():
            for k in range(200):
                if progress.is_over:
                    break
                ...
                progress.advance(k + 1, "best 1.2 MiB")
        progress.search_ended()
        progress.phase("best candidates compiled")
        ...

Terminals and notebooks have a bar, which goes away at the end. Elsewhere there is a line every few
seconds. Short work shows nothing, and neither does `Progress()`.

The first Ctrl-C ends the search with the best so far. After the search, the first Ctrl-C asks for
an early end of the rest. A second Ctrl-C in either part ends the program.
"""

import contextlib
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from numbers import Real
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self, TextIO

_INTERRUPTED = "it was interrupted"
_ENDING = "ends as soon as it can; Ctrl-C again ends the program"
_QUIET = 1.0  # s before anything is shown
_REFRESH = 0.25  # s between two states of a bar
_LINE = 5.0  # s between two lines
_WIDTH = 24  # characters of a bar


class Status(NamedTuple):
    """State of long work.

    Attributes:
      title: name of the work, such as "gopt.schedule".
      phase: name of the current phase, such as "search".
      done: number of units of the phase that are done.
      total: number of all units of the phase; `None` if it is not known.
      note: best result so far, or another figure, as text; may be empty.
      seconds: time since the phase began, s.
      left: estimated time until the phase ends, s; `None` if it is not known.
    """

    title: str
    phase: str
    done: int
    total: int | None
    note: str
    seconds: float
    left: float | None


Show = bool | Callable[[Status], Any]  # the argument `progress=` of verbs and training


class Progress:
    """Progress of long work, as a context manager.

    Attributes:
      cut: why the work was cut short; empty if it was not.
    """

    def __init__(self, title: str = "", show: Show = False, *, seconds: float | None = None):
        """Start the clock.

        Args:
          title: name of the work.
          show: whether progress is shown; or a function that is called with a `Status` after each
            step instead.
          seconds: time limit, s; by default there is none.

        Raises:
          ValueError: `seconds` is not positive, or `show` is neither a bool nor a function.
        """
        is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and float(seconds) > 0):
            raise ValueError(f"seconds is {seconds!r}: expected a positive number")
        if not isinstance(show, bool) and not callable(show):
            raise ValueError(f"progress is {show!r}: expected True, False or a function")
        self.cut = ""
        self._title, self._show, self._limit = title, show, seconds
        self._began = time.monotonic()
        self._phase: tuple[str, int, int | None, str, float] = ("", 0, None, "", self._began)
        self._before = 0
        self._presses = 0  # of Ctrl-C in this part of the work
        self._raising = 0  # blocks that run now, in which Ctrl-C raises an error
        self._has_raised = False  # an error that no block has caught
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._show is True:
            stream = sys.stderr
            self._thread = threading.Thread(target=self._paint, args=(stream,), daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def phase(self, name: str, total: int | None = None, done: int = 0) -> None:
        """Begin a phase.

        Args:
          name: name of the phase.
          total: number of its units, if it is known.
          done: number of units that were done before.
        """
        self._phase, self._before = (name, done, total, "", time.monotonic()), done
        self._tell()

    def advance(self, done: int, note: str = "") -> None:
        """Say how many units of the phase are done.

        Args:
          done: number of units that are done.
          note: best result so far, or another figure, as text.
        """
        name, _, total, _, since = self._phase
        self._phase = (name, done, total, note, since)
        self._tell()

    @property
    def is_over(self) -> bool:
        """Whether the time limit is over, or the work was interrupted."""
        limit = self._limit
        if not self.cut and limit is not None and time.monotonic() - self._began >= limit:
            self.cut = f"its {limit:g} s were over"
        return bool(self.cut)

    @property
    def remaining(self) -> float:
        """Time until the limit, s; infinite without one, and 0 if the work was cut short."""
        if self.is_over:
            return 0.0
        return math.inf if self._limit is None else self._began + self._limit - time.monotonic()

    @property
    def cut_note(self) -> str:
        """A sentence for results that were cut short; empty if this one was not."""
        return self.cut and f"cut short: {self.cut}; not reproducible"

    def search_ended(self) -> None:
        """Begin the last part of the work, which Ctrl-C may end early, too."""
        self._presses = 0

    @property
    def is_interrupted(self) -> bool:
        """True after Ctrl-C in this part of the work."""
        return self._presses > 0

    @contextlib.contextmanager
    def interrupts_noted(self) -> Iterator[None]:
        """Note the first Ctrl-C of each part, instead of ending the program.

        Python handles signals in its main thread only. The handler of another library, such as
        asyncio, is kept.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            self._press()
            if self._raising or self._presses > 1:
                self._has_raised = True
                signal.default_int_handler(number, frame)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGINT) is note:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextlib.contextmanager
    def interrupts_raised(self) -> Iterator[None]:
        """Let Ctrl-C raise `KeyboardInterrupt` in a block, as usual."""
        self._raising += 1
        try:
            yield
        finally:
            self._raising -= 1

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """End a block at the first Ctrl-C, at once; a second one ends the program."""
        try:
            with self.interrupts_raised():
                yield
        except BaseException as error:
            # A callback of XLA makes another error of it, with its name in the text.
            if not (isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt" in str(error)):
                raise
            if not self._has_raised:  # another handler raised it
                self._press()
            self._has_raised = False
            if self._presses > 1:
                raise

    def _press(self) -> None:
        self._presses += 1
        self.cut = self.cut or _INTERRUPTED
        if isinstance(self._show, bool):  # functions are told by the status
            with contextlib.suppress(RuntimeError):  # the signal came while this stream was written
                sys.stderr.write(f"\n{self._title}: {_ENDING}\n")

    @property
    def status(self) -> Status:
        """The state of the work now."""
        name, done, total, note, since = self._phase
        note = _ENDING if self._presses else note
        seconds = time.monotonic() - since
        new = done - self._before
        left = max(seconds * (total - done) / new, 0.0) if total and new > 0 else None
        if self._limit is not None and left is not None:
            left = min(left, max(self._began + self._limit - time.monotonic(), 0.0))
        return Status(self._title, name, done, total, note, seconds, left)

    def _tell(self) -> None:
        if callable(self._show):
            self._show(self.status)

    def _paint(self, stream: TextIO) -> None:
        """Show the status until the work ends."""
        is_notebook = type(stream).__module__.startswith("ipykernel")
        has_bar = is_notebook or stream.isatty()
        shown = 0
        wait = _QUIET if has_bar else _LINE
        while not self._ended.wait(wait):
            text = as_text(self.status, has_bar=has_bar)
            wait = _REFRESH if has_bar else _LINE
            if has_bar:
                if not is_notebook:  # a line that wraps would stay
                    text = text[: shutil.get_terminal_size().columns - 1]
                stream.write("\r" + text.ljust(shown))
                shown = len(text)
            else:
                stream.write(text + "\n")
            stream.flush()
        if shown:
            stream.write("\r" + " " * shown + "\r")
            stream.flush()


def as_text(status: Status, *, has_bar: bool) -> str:
    """Return a status as one line.

    Args:
      status: state of the work.
      has_bar: whether the line has a bar.
    """
    parts = [status.title if not status.phase else f"{status.title}: {status.phase}"]
    if status.total:
        share = min(status.done / status.total, 1.0)
        if has_bar:
            full = int(share * _WIDTH)
            parts.append("━" * full + "╌" * (_WIDTH - full))
        parts.append(f"{status.done} of {status.total}")
    elif status.done:
        parts.append(str(status.done))
    if status.note:
        parts.append(status.note)
    parts.append(f"{_clock(status.seconds)} so far")
    if status.left is not None:
        parts.append(f"{_clock(status.left)} left")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
