"""The one error type that a user sees: a single line that says what is wrong and what to change."""

from __future__ import annotations


class InputError(Exception):
    """Bad input. The message is one line: what, the value, the bound, and what to change. Exit code 2."""

    speaks = True
    """Whether this process reports it; false where another rank does."""


class DataError(InputError):
    """A file of a dataset is missing, damaged, or not in the form that was asked for."""

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
