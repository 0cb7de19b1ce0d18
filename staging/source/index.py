"""A dataset index: names, sizes, times and checksums in one text file, used in place of a walk.

A header, a line for each file in columns of fixed width, sorted by name, and a last line with the number of files and
the CRC32C of all bytes before it, so that an index that was cut or altered is refused::

    #hpcbench-index 1 size mtime_ns crc32c name
                12345  1700000000000000000 0a1b2c3d train/sample_0001.tfrecord
    #end 1 8a9136aa

An unknown checksum is eight dashes. Names are taken as the filesystem has them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from operator import lt
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from staging.atomic import replacing
from staging.checksums import crc32c
from staging.errors import DataError
from staging.formats.regular import open_regular, read_bytes
from staging.source.listing import UNKNOWN, Listing, Names, refuse_bytes
from staging.units import counted

VERSION = 1
HEADER = f"#hpcbench-index {VERSION} size mtime_ns crc32c name\n".encode()
MAGIC = re.compile(rb"#hpcbench-index (\d{1,9}) ")
END = re.compile(rb"#end (0|[1-9]\d{0,18}) ([0-9a-f]{8})\n")
SIZE, TIME, CHECKSUM = slice(0, 19), slice(20, 40), slice(41, 49)
SPACES = (19, 40, 49)
PREFIX = 50
"""Bytes of a line before the name."""
NO_CHECKSUM = b"-" * 8
IN_NUMBERS, IN_CHECKSUMS = (
    np.isin(np.arange(256), list(letters)) for letters in (b" -0123456789", b"0123456789abcdef")
)
PIECE = 4 << 20
"""Bytes parsed at a time, which bounds the memory for parsing."""
GOOD_NAME = re.compile(rb"[^./\n\0][^/\n\0]*(?:/[^./\n\0][^/\n\0]*)*")
"""Relative, without hidden parts and so without ``..``: an index never leads out of a destination, or into the
bookkeeping there. Newlines would end a line; a backslash is a character like any other."""
AGAIN = "make it again with `hpcbench data index`"


def refuse_existing(path: Path) -> None:
    """Raise ``DataError`` if ``path`` exists, or the system does not say."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(path, error) from None
    raise DataError(path, "exists already", "remove it, or name another file with --out")


def write_index(path: Path, listing: Listing) -> None:
    """Write ``listing`` to ``path``, complete or not at all.

    Raises ``DataError`` if ``path`` exists or can't be written, and for names and sizes that an index can't hold.
    """
    refuse_existing(path)
    refuse_bytes(path, listing.sizes)
    checksum = crc32c(HEADER)
    before = b""
    try:
        with replacing(path, durable=True) as temporary, temporary.open("wb") as file:
            file.write(HEADER)
            for names, lines in _lines(listing):
                before = _refuse_names(path, b"\n".join(names), names, before)
                checksum = crc32c(lines, checksum)
                file.write(lines)
            file.write(b"#end %d %08x\n" % (len(listing), checksum))
            file.flush()
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(path, f"cannot be written ({error.strerror})", "name a file that you may write with --out")


def read_index(path: Path) -> Listing:
    """The listing in ``path``; ``DataError`` for a file that ``write_index`` would not have made."""
    with _told(path):
        data = read_bytes(path)
    count, body_end = _verify(path, data)
    columns: list[tuple[NDArray[np.int64], ...]] = []
    blobs: list[bytes] = []
    before, start = b"", len(HEADER)
    while start < body_end:
        stop = data.find(b"\n", min(start + PIECE, body_end - 1)) + 1
        piece = np.frombuffer(data, np.uint8, stop - start, start)
        text, *numbers = _parse(path, piece)
        before = _refuse_names(path, text, text.split(b"\n"), before)
        blobs.append(text.replace(b"\n", b""))
        columns.append(tuple(numbers))
        start = stop
    lengths, sizes, times, checksums = (np.concatenate(column) for column in zip(*columns, strict=True))
    if len(lengths) != count:
        raise DataError(path, f"lists {counted(len(lengths), 'file')} where its end says {count}", AGAIN)
    refuse_bytes(path, sizes)
    return Listing(Names(b"".join(blobs), np.cumsum(lengths)), sizes, times, checksums)


def check_index(path: Path) -> None:
    """Raise ``DataError`` if the first line of ``path`` is not that of an index; the rest is not read."""
    with _told(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with open_regular(path) as file:
            head = file.read(len(HEADER))
    _check_version(path, head)


def is_index(path: Path) -> bool:
    """Whether ``path`` begins as an index of any version; false where it cannot be read."""
    with suppress(OSError, DataError), open_regular(path) as file:
        return MAGIC.match(file.read(len(HEADER))) is not None
    return False


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Within this context, an index that cannot be read raises ``DataError``."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(path, "no such index", "make one with `hpcbench data index`") from None
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "check the file and its permissions") from None


def _verify(path: Path, data: bytes) -> tuple[int, int]:
    """The number of files that the last line states, and where that line begins; ``DataError`` for a damaged index."""
    _check_version(path, data)
    start = data.rfind(b"\n", 0, -1) + 1
    end = END.fullmatch(data, start)
    if end is None or not data.startswith(HEADER):
        raise DataError(path, "is cut off: its last line is not the end that it was written with", AGAIN)
    computed, said = crc32c(memoryview(data)[:start]), int(end[2], 16)
    if computed != said:
        raise DataError(path, f"was altered: its checksum is {computed:08x} where its end says {said:08x}", AGAIN)
    if start <= len(HEADER):
        raise DataError(path, "lists no file", AGAIN)
    return int(end[1]), start


def _check_version(path: Path, data: bytes) -> None:
    magic = MAGIC.match(data)
    if magic is None:
        raise DataError(path, "is not a dataset index", "name a file that `hpcbench data index` made")
    if int(magic[1]) != VERSION:
        raise DataError(path, f"has version {int(magic[1])}, this program reads {VERSION}", AGAIN)


def _parse(
    path: Path, piece: NDArray[np.uint8]
) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Names with newlines between them, and columns of their lengths, sizes, times and checksums, from whole lines."""
    ends = np.flatnonzero(piece == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts - PREFIX
    if lengths.min() < 1:
        raise DataError(path, "has a line that is too short", AGAIN)
    rows = sliding_window_view(piece, PREFIX)[starts]
    try:
        if (rows[:, SPACES] != ord(" ")).any():
            raise ValueError
        sizes, times = (_numbers(rows[:, column]) for column in (SIZE, TIME))
        checksums = _checksums(_text(rows[:, CHECKSUM]))
    except (ValueError, OverflowError):
        raise DataError(path, "has a line whose columns are not size, time and checksum", AGAIN) from None
    if sizes.min() < 0:
        raise DataError(path, f"has a file of {sizes.min()} bytes", AGAIN)
    is_name = np.ones(len(piece), np.bool_)
    sliding_window_view(is_name, PREFIX, writeable=True)[starts] = False
    return piece[is_name][:-1].tobytes(), lengths, sizes, times, checksums


def _text(columns: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    return np.ascontiguousarray(columns).view(f"S{columns.shape[1]}")[:, 0]


def _numbers(columns: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The numbers in ``columns`` (n, width), as ``%d`` writes them; ``ValueError`` or ``OverflowError`` for others."""
    before, digits = np.pad(columns[:, :-2], ((0, 0), (1, 0)), constant_values=ord(" ")), columns[:, :-1]
    leading_zero = (digits == ord("0")) & ((before == ord(" ")) | (before == ord("-")))
    if leading_zero.any() or not IN_NUMBERS[columns].all() or (columns[:, -1] < ord("0")).any():
        raise ValueError
    if ((columns[:, -1] == ord("0")) & (columns[:, -2] == ord("-"))).any():
        raise ValueError
    return _text(columns).astype(np.int64)


def _checksums(texts: NDArray[np.bytes_]) -> NDArray[np.int64]:
    unknown = texts == NO_CHECKSUM
    digits = np.where(unknown, b"0" * 8, texts).tobytes()
    if not IN_CHECKSUMS[np.frombuffer(digits, np.uint8)].all():
        raise ValueError
    values = np.frombuffer(bytes.fromhex(digits.decode("ascii")), ">u4").astype(np.int64)
    values[unknown] = UNKNOWN
    return values


def _refuse_names(path: Path, text: bytes, names: list[bytes], before: bytes) -> bytes:
    """The last of ``names``; raises ``DataError`` if one is not allowed, or not after the one before it.

    ``text`` has the names with newlines between them. Checking names one by one takes ten times as long, so that is
    done only if something may be wrong.
    """
    bad = next((name for name in names if not GOOD_NAME.fullmatch(name)), None) if _is_suspect(text, names) else None
    if bad is not None:
        problem = f"cannot hold the name {bad!r}: absolute, hidden, or with '..' or a newline"
        raise DataError(path, problem, "rename or exclude the file")
    if not (before < names[0] and all(map(lt, names, islice(names, 1, None)))):
        raise DataError(path, "has names that are not sorted, or not unique", AGAIN)
    return names[-1]


def _is_suspect(text: bytes, names: list[bytes]) -> bool:
    """Whether a part of a name may be empty or hidden, or contain a forbidden byte."""
    bytes_ = np.frombuffer(b"\n%b\n" % text, np.uint8)
    is_newline = bytes_ == ord("\n")
    first = bytes_[1:][(is_newline | (bytes_ == ord("/")))[:-1]]
    forbidden = (first == ord(".")) | (first == ord("/")) | (first == ord("\n"))
    return bool(forbidden.any()) or not bytes_.all() or np.count_nonzero(is_newline) != len(names) + 1


def _lines(listing: Listing) -> Iterator[tuple[list[bytes], bytes]]:
    """Yield blocks of names, each with its lines."""
    start = 0
    for names in listing.names.blocks():
        stop = start + len(names)
        columns = (column[start:stop].tolist() for column in (listing.sizes, listing.mtimes_ns, listing.checksums))
        yield (
            names,
            b"".join(
                b"%19d %20d %b %b\n" % (size, time_ns, NO_CHECKSUM if checksum == UNKNOWN else b"%08x" % checksum, name)
                for name, size, time_ns, checksum in zip(names, *columns, strict=True)
            ),
        )
        start = stop
