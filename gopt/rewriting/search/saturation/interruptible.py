"""Calls of solvers that Ctrl-C interrupts."""

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def interruptible(call: Callable[[], T]) -> T:
    """Return the result of a call that releases the interpreter, such as a solver's.

    Python handles Ctrl-C between its own instructions only, so a solver would run to its end. Here
    it does so in another thread, and the caller is interrupted at once.

    Args:
      call: function to call; after an interrupt it still ends, and its result is lost.
    """
    results, errors = list[T](), list[BaseException]()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)  # an interrupt may be noticed only here
    if errors:
        raise errors[0]
    return results[0]
