"""Transform ``untar``: extracts tar archives while they stream; they are never on disk, nor whole in memory.

The members of ``train/shard-0007.tar`` land below ``train/``, the folder of the archive, under their names in the
archive. ``.tar``, ``.tar.gz``, ``.tgz``, ``.tar.xz`` and ``.tar.bz2`` are archives; other files land as they are. Times
are the archive's, permissions the user's own; folders without files are not made. An open archive holds one piece and
the names of its members; a compressed one at most 17 MiB more (66 MiB for ``xz -9``).
"""

from __future__ import annotations

from staging.errors import DataError
from staging.formats.tar import TarParser
from staging.landing.file_sink import refuse_outside
from staging.landing.sinks import Landed, Sink, SinkMaker
from staging.landing.transform.options import Options, positive, refuse_unknown
from staging.landing.transform.streaming import DecompressSink
from staging.storage.destination_folder import DestinationFolder

KINDS = {".tar": "", ".tar.gz": "gzip", ".tgz": "gzip", ".tar.xz": "xz", ".tar.bz2": "bzip2"}
EXPANSION = 6
"""The estimated bytes out per byte in of a compressed archive."""


class Untar:
    """The transform. Option ``expansion``: bytes out per byte in of a compressed archive, for the space check."""

    suffixes = tuple(KINDS)

    def __init__(self, expansion: int = EXPANSION) -> None:
        self.expansion = expansion

    @classmethod
    def from_options(cls, options: Options) -> Untar:
        """The transform with the options after its name."""
        refuse_unknown("untar", options, ["expansion"])
        return cls(positive("untar", options, "expansion", EXPANSION))

    def names(self, name: str) -> list[str]:
        """Empty for an archive: only its content tells."""
        return [name] if archive_kind(name) is None else []

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """Sinks that extract, each member to a sink of ``inner``."""
        return TarSinkMaker(inner, self.expansion)


def archive_kind(name: str) -> str | None:
    """How an archive of this name is compressed (empty: not at all); ``None`` if it is no archive."""
    return next((kind for suffix, kind in KINDS.items() if name.endswith(suffix)), None)


class TarSinkMaker:
    """Opens a sink that extracts for archives, and one of ``inner`` for other files. Used by many threads."""

    def __init__(self, inner: SinkMaker, expansion: int = EXPANSION) -> None:
        self.inner = inner
        self._expansion = expansion

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        """A sink for the archive or the file ``name``."""
        kind = archive_kind(name)
        if kind is None:
            return self.inner(destination, name, size, mtime_ns, source or name)
        sink = TarSink(self.inner, destination, name, mtime_ns, source or name)
        return DecompressSink(kind, name, sink) if kind else sink

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        """What ``inner`` makes of a file of ``size``, times the expansion for a compressed archive."""
        return self.inner.estimate(name, size * self._expansion if archive_kind(name) else size)


class TarSink:
    """Extracts one plain archive. Members land one by one; ``abandon`` removes those that did."""

    def __init__(
        self, inner: SinkMaker, destination: DestinationFolder, archive: str, mtime_ns: int, source: str
    ) -> None:
        self._inner, self._destination = inner, destination
        self._archive, self._mtime_ns, self._source = archive, mtime_ns, source
        self._folder = archive[: archive.rfind("/") + 1]
        self._parser = TarParser(archive, self)
        self._names: set[str] = set()
        self._landed: list[Landed] = []
        self._sink: Sink | None = None

    def write(self, data: memoryview) -> None:
        """Extract ``data``. Raises ``DataError`` that names archive and member for anything unsafe or damaged."""
        self._parser.feed(data)

    def close(self) -> list[Landed]:
        """All members. Raises ``DataError`` for an archive that is cut short."""
        self._parser.finish()
        landed, self._landed = self._landed, []
        return landed

    def abandon(self) -> None:
        """Remove the members: they are not complete without the rest of the archive."""
        if self._sink is not None:
            self._sink.abandon()
        for landed in self._landed:
            self._destination.unlink(landed.name, missing_ok=True)
        self._landed = []

    def begin(self, name: str, size: int) -> None:
        """A member begins."""
        member = "/".join(part for part in name.split("/") if part != ".")
        refuse_outside(member, self._archive)
        self._sink = self._inner(self._destination, self._folder + member, size, self._mtime_ns, self._source)

    def content(self, data: memoryview) -> None:
        """Bytes of the member."""
        assert self._sink is not None
        self._sink.write(data)

    def end(self) -> None:
        """The member is complete."""
        assert self._sink is not None
        landed = self._sink.close()
        self._landed += landed
        self._sink = None
        for file in landed:
            if file.name in self._names:
                raise DataError(self._archive, f"becomes two files named '{file.name}'", "pack it again")
            self._names.add(file.name)
