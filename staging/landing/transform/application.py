"""Transforms that an application defines: a function found by its name, ``package.module:function``.

The function is ``function(name: str, data: memoryview) -> list[tuple[str, bytes-like]]``: it gets the relative name and
the whole content of a file (a view that is only valid during the call and must not be changed) and returns the files
that it becomes; an array lands as its bytes, in the order of its indices. Several threads call it at the same time.
Three attributes of it are used if they exist: ``function.expansion``, the bytes out per byte in (1.0), for the check of
free space; ``function.names``, a function from a name to the list of output names, to find clashes before anything is
moved; and ``function.suffixes``, the endings of the names that it is for, which ``--plain auto`` needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from staging.errors import DataError, InputError
from staging.landing.transform.whole import Output, WholeTransform, byte_view


class Application(WholeTransform):
    """A transform by an application's function; ``called`` is how the user called it."""

    def __init__(self, called: str, function: Callable[[str, memoryview], Iterable[tuple[str, Any]]]) -> None:
        self.called = called
        self.function = function
        self.suffixes = tuple(getattr(function, "suffixes", ()))

    @classmethod
    def find(cls, module: str, function: str) -> Application:
        """The transform ``module:function``. Raises ``InputError`` if either is missing."""
        called = f"{module}:{function}"
        try:
            imported = importlib.import_module(module)
        except (ImportError, ValueError, TypeError) as error:
            raise InputError(f"transform '{called}': cannot import '{module}' ({error}); install it") from None
        if not callable(getattr(imported, function, None)):
            raise InputError(f"transform '{called}': '{module}' has no function '{function}'; check its name")
        return cls(called, getattr(imported, function))

    def names(self, name: str) -> list[str]:
        """What ``function.names`` returns; empty if there is none."""
        names = getattr(self.function, "names", None)
        return [] if names is None else list(names(name))

    def output_bytes(self, name: str, size: int) -> int:
        """``function.expansion`` times the size."""
        return int(size * float(getattr(self.function, "expansion", 1.0)))

    def convert(self, name: str, data: memoryview) -> list[Output]:
        """What the function returns. Whatever it raises, or returns that is no content, becomes a ``DataError``."""
        try:
            made = self.function(name, data.toreadonly())
            return [(output, [byte_view(content)]) for output, content in made]
        except DataError:
            raise
        except Exception as error:  # the application's code may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise DataError(
                name, f"cannot be transformed by {self.called} ({reason})", "mend one of the two"
            ) from error
