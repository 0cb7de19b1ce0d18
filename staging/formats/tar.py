"""Reads a tar archive (POSIX ustar and pax, GNU) that arrives in pieces, and holds no more than a header of it.

Blocks of 512 bytes: a header, then the content padded with zeros; two blocks of zeros end the archive. Names that do
not fit into a header come before it, as a GNU member of type ``L`` or as pax records (POSIX.1-2017, pax). Only files
and folders are taken: links, devices and sparse files are refused.
"""

from __future__ import annotations

import tarfile
from typing import Protocol

from staging.errors import DataError

BLOCK = 512
NAME_BYTES = 1 << 20
"""The longest header extension that is read."""
LENGTH_DIGITS = 8
"""The length of a pax record must end within this many bytes; ``NAME_BYTES`` has seven digits."""
SIZE_DIGITS = 19
"""The most digits of a size in a pax record; no filesystem has larger files."""
FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
EXTENSIONS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
OTHERS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
AGAIN = "pack or copy it again"


class Members(Protocol):
    """Receives the content of an archive, in order."""

    def begin(self, name: str, size: int) -> None:
        """A file of ``size`` bytes begins; ``name`` is as the archive has it."""

    def content(self, data: memoryview) -> None:
        """The next bytes of that file."""

    def end(self) -> None:
        """That file is complete."""


class TarParser:
    """Splits the bytes of ``archive`` (its name, for messages) into the files of ``members``."""

    def __init__(self, archive: str, members: Members) -> None:
        self._archive, self._members = archive, members
        self._offset = 0
        self._block = bytearray()
        self._extension = bytearray()
        self._extends = b""  # the type of the extension that is being read
        self._in_file = False
        self._left = self._padding = 0  # bytes of the current content still to come
        self._long_name = ""
        self._pax: dict[str, str] = {}
        self._zero_blocks = 0

    def feed(self, data: memoryview) -> None:
        """Take the next bytes. Raises ``DataError`` for what is not a sound archive of files and folders."""
        while len(data):
            if self._left:
                part = data[: self._left]
                self._left -= len(part)
                self._content(part)
            elif self._padding:
                part = data[: self._padding]
                self._padding -= len(part)
            else:
                part = data[: BLOCK - len(self._block)]
                self._block += part
                if len(self._block) == BLOCK:
                    self._header(bytes(self._block))
                    self._block.clear()
            self._offset += len(part)
            data = data[len(part) :]

    def finish(self) -> None:
        """All bytes have arrived. Raises ``DataError`` if the archive does not end here."""
        if self._left or self._padding or self._block or not self._zero_blocks:
            raise DataError(self._archive, f"is an archive cut short at byte {self._offset}", AGAIN)

    def _content(self, part: memoryview) -> None:
        if self._in_file:
            self._members.content(part)
            if not self._left:
                self._end_file()
        else:
            self._extension += part
            if not self._left:
                self._end_extension()

    def _header(self, block: bytes) -> None:
        if not any(block):
            self._zero_blocks += 1
            return
        if self._zero_blocks:
            raise DataError(self._archive, f"has other bytes behind its end, at byte {self._start()}", AGAIN)
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            problem = f"is not a sound tar archive at byte {self._start()} ({error})"
            raise DataError(self._archive, problem, AGAIN) from None
        if header.type in EXTENSIONS:
            self._begin_extension(header)
        else:
            self._begin_member(header)

    def _begin_extension(self, header: tarfile.TarInfo) -> None:
        if not 0 < header.size <= NAME_BYTES:
            problem = (
                f"has a name or attributes of {header.size} bytes at byte {self._start()}, at most {NAME_BYTES} go"
            )
            raise DataError(self._archive, problem, AGAIN)
        self._extends = header.type
        self._expect(header.size)

    def _end_extension(self) -> None:
        if self._extends == tarfile.GNUTYPE_LONGNAME:
            self._long_name = bytes(self._extension).rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif self._extends == tarfile.XHDTYPE:
            self._pax = self._records(bytes(self._extension))
        self._extension.clear()

    def _begin_member(self, header: tarfile.TarInfo) -> None:
        name = self._pax.get("path") or self._long_name or header.name
        sparse = any(key.startswith("GNU.sparse.") for key in self._pax)
        size = self._size(name, header)
        self._pax, self._long_name = {}, ""
        if header.type == tarfile.DIRTYPE or (header.type in FILES and name.endswith("/")):
            return
        if header.type not in FILES or sparse:
            kind = "a sparse file" if sparse else OTHERS.get(header.type, f"of unknown type {header.type!r}")
            problem = f"member '{name}' is {kind}, and only files and folders are extracted"
            raise DataError(self._archive, problem, "pack it without, with links followed (tar --dereference)")
        if size < 0:
            raise DataError(self._archive, f"member '{name}' has a size of {size} bytes", AGAIN)
        self._members.begin(name, size)
        self._in_file = True
        self._expect(size)
        if not size:
            self._end_file()

    def _size(self, name: str, header: tarfile.TarInfo) -> int:
        said = self._pax.get("size")
        if said is None:
            return header.size
        if len(said) > SIZE_DIGITS or not (said.isascii() and said.isdecimal()):
            raise DataError(self._archive, f"member '{name}' has a size of '{said[:40]}' bytes", AGAIN)
        return int(said)

    def _end_file(self) -> None:
        self._in_file = False
        self._members.end()

    def _expect(self, size: int) -> None:
        self._left, self._padding = size, -size % BLOCK

    def _records(self, data: bytes) -> dict[str, str]:
        """Pax records, each ``length key=value`` and a line feed."""
        records: dict[str, str] = {}
        data, start = data.rstrip(b"\0"), 0
        try:
            while start < len(data):
                space = data.index(b" ", start, start + LENGTH_DIGITS)
                end = start + int(data[start:space])
                key, _, value = data[space + 1 : end - 1].partition(b"=")
                if data[end - 1 : end] != b"\n" or end <= space or not key:
                    raise ValueError("a record does not end where it says")
                records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
                start = end
        except ValueError as error:
            problem = f"has damaged pax attributes before byte {self._start()} ({error})"
            raise DataError(self._archive, problem, AGAIN) from None
        return records

    def _start(self) -> int:
        """Where the current header begins; its last piece is not yet counted."""
        return self._offset // BLOCK * BLOCK
