"""Finds the files that a transform leaves as they are, such as statistics for all samples, and what others become."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from staging.errors import InputError
from staging.landing.sinks import Sink, SinkMaker
from staging.landing.transforms import find_transform
from staging.storage.destination_folder import DestinationFolder

AUTO = "auto"
"""In place of a pattern: every name without an ending that the transform knows."""


class WithExclusions:
    """Opens sinks of ``transforming``, but of ``plain`` for names that match ``patterns`` for ``transform``."""

    def __init__(self, transforming: SinkMaker, plain: SinkMaker, patterns: tuple[str, ...], transform: str) -> None:
        self._transforming = transforming
        self._plain = plain
        self._match = matcher(patterns, transform)

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        """A sink for the entry ``name``."""
        return self._of(name)(destination, name, size, mtime_ns, source or name)

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        """What the entry becomes."""
        return self._of(name).estimate(name, size)

    def _of(self, name: str) -> SinkMaker:
        return self._plain if self._match(name) else self._transforming


def landed_names(transform: str, plain: tuple[str, ...] = ()) -> Callable[[str], list[str]]:
    """A function from an entry's name to the names that it lands under; none if only its content tells."""
    if not transform:
        return lambda name: [name]
    names, is_plain = find_transform(transform).names, matcher(plain, transform)
    return lambda name: [name] if plain and is_plain(name) else names(name)


def matcher(patterns: tuple[str, ...], transform: str) -> Callable[[str], object]:
    """A function that tells whether a name matches one of the shell patterns, or, with ``AUTO``, has no known ending.

    Raises ``InputError`` if the transform does not say which names it knows.
    """
    given = [pattern for pattern in patterns if pattern != AUTO]
    match = re.compile("|".join(fnmatch.translate(pattern) for pattern in given)).match if given else lambda name: None
    if AUTO not in patterns:
        return match
    known = find_transform(transform).suffixes
    if not known:
        raise InputError(f"--plain auto: {transform} does not say which names it knows; give patterns instead")
    return lambda name: not name.endswith(known) or match(name)
