"""Files that a transform leaves as they are, such as statistics that all samples share."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from staging.landing.sinks import Sink, SinkMaker


class ExceptPlain:
    """Opens a sink of ``transforming``, but of ``plain`` for names that match one of ``patterns`` (shell patterns)."""

    def __init__(self, transforming: SinkMaker, plain: SinkMaker, patterns: tuple[str, ...]) -> None:
        self._transforming = transforming
        self._plain = plain
        self._match = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match

    def __call__(self, destination: Path, name: str, size: int, mtime_ns: int) -> Sink:
        """A sink for the entry ``name``."""
        return self._of(name)(destination, name, size, mtime_ns)

    def space(self, name: str, size: int) -> int:
        """Bytes that the entry will take."""
        return self._of(name).space(name, size)

    def _of(self, name: str) -> SinkMaker:
        return self._plain if self._match(name) else self._transforming
