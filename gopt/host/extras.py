"""Optional dependencies: imported when they are used; a missing one is reported with its extra."""

import importlib
from typing import Any


class _Optional:
    """A module that is imported when an attribute is asked for."""

    def __init__(self, module: str, message: str):
        self._module, self._message = module, message

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module(self._module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in ("gopt", "experiments"):
                raise  # a module of ours: no extra would help
            raise ImportError(self._message, name=error.name) from error
        return getattr(module, name)


def check_installed(module: Any) -> None:
    """Check that an optional module can be imported, before work that needs it in the end.

    Raises:
      ImportError: it cannot. The message names the extra.
    """
    _ = module.__name__


def optional(module: str, extra: str, purpose: str) -> Any:
    """Return a module that needs an extra of the distribution, without importing it yet.

    Its attributes import it. If a package is missing, they raise an `ImportError` with the command
    that installs the extra.

    Args:
      module: full name of the module.
      extra: name of the extra in `pyproject.toml`.
      purpose: use of the module, for the message.
    """
    message = f"gopt needs the extra \"{extra}\" for {purpose}: pip install 'gopt-jax[{extra}]'"
    return _Optional(module, message)
