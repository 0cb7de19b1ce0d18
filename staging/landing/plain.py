"""Files that a transform leaves as they are, such as statistics that all samples share; and what files become."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from staging.landing.sinks import Sink, SinkMaker
from staging.landing.transforms import find_transform
from staging.storage.destination_folder import DestinationFolder


class ExceptPlain:
    """Opens a sink of ``transforming``, but of ``plain`` for names that match one of ``patterns`` (shell patterns)."""

    def __init__(self, transforming: SinkMaker, plain: SinkMaker, patterns: tuple[str, ...]) -> None:
        self._transforming = transforming
        self._plain = plain
        self._match = matcher(patterns)

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int) -> Sink:
        """A sink for the entry ``name``."""
        return self._of(name)(destination, name, size, mtime_ns)

    def space(self, name: str, size: int) -> int:
        """Bytes that the entry will take."""
        return self._of(name).space(name, size)

    def _of(self, name: str) -> SinkMaker:
        return self._plain if self._match(name) else self._transforming


def landed_names(transform: str, plain: tuple[str, ...] = ()) -> Callable[[str], list[str]]:
    """What gives the names that an entry lands under, by its own; none where only its content tells."""
    if not transform:
        return lambda name: [name]
    names, is_plain = find_transform(transform).names, matcher(plain)
    return lambda name: [name] if plain and is_plain(name) else names(name)


def matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Whether a name matches one of the shell patterns."""
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
