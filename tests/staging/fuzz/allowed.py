"""What a reader may do with a file: give a value, or refuse it in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from staging.errors import InputError

LONGEST = 2100
"""Characters of a message, and some more for what is put around it."""


class WrongError(Exception):
    """A reader let pass, or said, what it may not."""


@contextmanager
def refused() -> Iterator[None]:
    """Bad input is an allowed end of what is done within, if it is told in one line."""
    try:
        yield
    except InputError as error:
        expect_line(str(error))


def expect_line(text: str) -> None:
    """Raise ``WrongError`` unless a text for people is one line that every terminal shows."""
    if not text or len(text) > LONGEST:
        raise WrongError(f"a message of {len(text)} characters: {text[:100]}")
    if not text.isprintable():
        raise WrongError(f"a message that is not printable: {text[:100]}")


def expect(holds: bool, what: str) -> None:
    """Raise ``WrongError`` with ``what`` unless it ``holds``."""
    if not holds:
        raise WrongError(what)
