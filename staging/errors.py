"""The errors that a user sees, in a single line: bad input, and work that had to stop."""

from __future__ import annotations

from staging.one_line import one_line


class InputError(Exception):
    """Bad input. The message is one line: what, the value, the bound, and what to change. Exit code 2."""

    cause = "error"
    """Why the work ended, as a word for programs, as in ``Aborted``."""
    speaks = True
    """Whether this process reports it; false if another rank does."""

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class DataError(InputError):
    """A file of a dataset is missing, damaged, or not in the form that was asked for."""

    cause = "bad_data"

    def __init__(self, path: object, problem: str, change: str = "") -> None:
        super().__init__(f"{path}: {problem}" + (f"; {change}" if change else ""))
        self.path = path
        self.problem = problem
        self.change = change

    def __reduce__(self) -> tuple[type[DataError], tuple[str, str, str]]:
        return type(self), (str(self.path), self.problem, self.change)


class EveryRankError(InputError):
    """Bad input that all ranks know of; only the first rank that found it (``speaks``) reports it."""

    def __init__(self, message: str, speaks: bool) -> None:
        super().__init__(message)
        self.speaks = speaks


class Aborted(Exception):  # noqa: N818 - it is an event, and not always an error
    """The work had to stop: a loss that is not finite, a full disk, a signal, another rank."""

    speaks = True
    """Whether this rank reports it; if all ranks stop for the same reason, the first one does."""

    def __init__(
        self, reason: str, exit_code: int = 1, *, everywhere: bool = False, cause: str = "error",
        signal: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.exit_code = exit_code
        self.cause = cause
        """Why the work stopped, as a word for programs."""
        self.signal = signal
        """Name of the signal if a signal was the cause, such as ``SIGUSR1``."""
        self.everywhere = everywhere
        """Whether all ranks have agreed to raise it, so that none has to tell the others."""
