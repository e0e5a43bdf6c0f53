"""Run functions in a process of its own, which may fail, hang or be killed."""

import contextlib
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, BinaryIO

_STARTING = 120.0  # s, time limit for a process to start
_GROUP = 0 if os.name == "posix" else None  # 0 is a new group
_WATCH = 0.5  # s between two looks at the parent process


class WorkerError(RuntimeError):
    """A function failed in a worker, or its process died."""


class Worker:
    """A process that runs functions, one after another.

    The process starts with the first function, and anew after one that hung or killed it. It ends
    when this process ends, even if this one is killed and the worker is busy; code that holds
    Python's global lock ends when it releases the lock. `__main__` is not imported, so functions
    must come from other modules, and scripts need no `if __name__ == "__main__":`. The process
    reads nothing from standard input, and what it prints goes to standard error. Ctrl-C interrupts
    the waiting process only, which then ends the worker.
    """

    def __init__(self, prepare: Callable[[], Any] | None = None):
        """Start nothing yet.

        Args:
          prepare: function that each process calls first.
        """
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._end: Callable[[], Any] = lambda: None

    def start(self) -> None:
        """Start the process, unless it is running.

        Raises:
          RuntimeError: the process does not start within 120 s, or `prepare` fails.
        """
        if self._process is not None and self._process.poll() is not None:
            self.close()  # so that the next function does not fail because of it
        if self._process is None:
            # This file is run as a script, because importing it would also import JAX.
            command = [sys.executable, "-P", __file__, str(os.getpid()), *map(str, sys.path)]
            # A process group of its own: Ctrl-C in a terminal goes to all processes of a group.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=_GROUP
            )
            self._answers = queue.SimpleQueue()
            _start_thread(_read, self._process.stdout, self._answers.put)
            self._end = weakref.finalize(self, _end, self._process)
            try:
                self._ask(self._prepare or bool, (), _STARTING)
            except (TimeoutError, WorkerError) as error:
                self.close()
                raise RuntimeError(f"no worker process starts: {error}") from error

    def run(self, function: Callable[..., Any], *args: Any, seconds: float = math.inf) -> Any:
        """Return the result of a function in the process.

        Args:
          function: function of a module; it, its arguments and its result are pickled.
          *args: arguments of the function.
          seconds: time limit, s, without the start of the process.

        Raises:
          TimeoutError: no result within `seconds`; the process is ended.
          WorkerError: the function raises an error, whose type and message this one has; its
            result cannot be pickled; or the process dies.
          RuntimeError: the process does not start.
        """
        self.start()
        return self._ask(function, args, seconds)

    def close(self) -> None:
        """End the process. The next function starts a new one."""
        self._end()
        self._process = None

    def _ask(self, function: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None
        request = pickle.dumps((function, args))
        try:
            with contextlib.suppress(BrokenPipeError):  # the process has died, as is found below
                pickle.dump(request, process.stdin)
                process.stdin.flush()
            answer = self._answers.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            self.close()
            raise TimeoutError(f"no answer within {seconds} s") from None
        except BaseException:  # an interrupt: else the next function would get this answer
            self.close()
            raise
        if answer is None:
            self.close()
            raise WorkerError(f"the worker process died with exit code {process.returncode}")
        succeeded, result = pickle.loads(answer)
        if not succeeded:
            raise WorkerError(result)
        return result


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and wait for its end."""
    process.kill()
    process.wait()
    with contextlib.suppress(OSError):  # it has not read its last request
        process.stdin.close()  # type: ignore[union-attr]


def _start_thread(function: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=function, args=args, daemon=True).start()


def _read(stream: BinaryIO, put: Callable[[bytes | None], Any]) -> None:
    """Pass on pickled bytes from a stream, and None at its end."""
    with stream:
        try:
            while True:
                put(pickle.load(stream))
        except Exception:  # EOFError, or the other process was killed while it wrote
            put(None)


def _serve(parent: int) -> None:
    """Run functions that arrive on standard input, until it is closed or the parent process dies.

    Args:
      parent: number of the parent process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "rb") as nothing:
        requests = os.fdopen(os.dup(0), "rb")
        os.dup2(nothing.fileno(), 0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def put(request: bytes | None) -> None:
        if request is None:
            os._exit(0)  # at once: the main thread can be busy
        waiting.put(request)

    _start_thread(_read, requests, put)
    _start_thread(_watch, parent)
    while True:
        request = waiting.get()
        try:
            function, args = pickle.loads(request)
            answer = pickle.dumps((True, function(*args)))
        except BaseException as error:  # SystemExit, too: the parent decides when this process ends
            answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        pickle.dump(answer, answers)
        answers.flush()


def _watch(parent: int) -> None:
    """End this process after its parent. Forked siblings can keep standard input open."""
    while os.name != "posix" or os.getppid() == parent:
        time.sleep(_WATCH)
    os._exit(0)


if __name__ == "__main__":
    sys.path[:] = sys.argv[2:]
    _serve(int(sys.argv[1]))
