"""Tar archives, and compressed files; what is repaired are checksums of headers and trailers."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import zlib
from pathlib import Path

from staging.archive_members import look_into
from staging.formats.compression import gunzip
from tests.staging.fuzz.allowed import expect, refused
from tests.staging.fuzz.family import Family
from tests.staging.fuzz.sinks import transform

BLOCK = 512
CHECKSUM = slice(148, 156)


def archive(kind: int, members: dict[str, bytes], **attributes: str) -> bytes:
    """A tar archive of ``members``."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind, pax_headers=attributes or None) as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return file.getvalue()


def tar_repaired(data: bytes, dice: random.Random) -> bytes:
    """The checksum of each header is right; headers follow from one another's sizes where these are sound."""
    found, place = bytearray(data), 0
    while place + BLOCK <= len(found):
        header = found[place : place + BLOCK]
        if any(header):
            header[CHECKSUM] = b" " * 8
            found[place + 148 : place + 156] = b"%06o\0 " % sum(header)
        digits = header[124:136].strip(b"\0 ")
        size = int(digits, 8) if digits and all(digit in b"01234567" for digit in digits) else 0
        place += BLOCK + -(-min(size, len(found)) // BLOCK) * BLOCK
    if dice.random() < 0.5:
        found += bytes(-len(found) % BLOCK + 2 * BLOCK)
    return bytes(found)


class TarFamily(Family):
    """Archives, as they are and compressed."""

    tokens = (
        bytes(BLOCK), b"ustar\0" + b"00", b"ustar  \0", b"././@LongLink", b"x", b"g", b"L", b"K", b"5", b"2", b"S",
        b"../", b"/", b"./", b"\0", b"11 path=a/b\n", b"16 size=1234567\n", b"22 GNU.sparse.size=1\n",
        b"8 path=\0\n", b"13 path=\xff\x80\x1b[\n", b"0 a=b\n", b"-7 a=b\n",
        b"\x80" + bytes(10) + b"\x07", b"\xff" * 12,
        b"77777777777\0", b"5012 size=" + b"9" * 5001 + b"\n", b"1008 path=" + b"d/" * 498 + b"f\n",
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        few = {"a.bin": b"hi\n", "train/b.bin": dice.randbytes(700), "train/empty": b""}
        long = {f"{'d/' * 90}{n}": dice.randbytes(n) for n in range(3)} | {"n" * 300: b"x"}
        many = {f"train/{n:03d}.npy": dice.randbytes(n % 5) for n in range(60)}
        odd = {"n\u0301\u00e9\U0001f600": b"y"}
        return [
            archive(tarfile.USTAR_FORMAT, few), archive(tarfile.GNU_FORMAT, long), archive(tarfile.PAX_FORMAT, long),
            archive(tarfile.PAX_FORMAT, odd, comment="of all"), archive(tarfile.USTAR_FORMAT, many),
        ]  # fmt: skip

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """As ``tar_repaired``."""
        return tar_repaired(data, dice)

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """Looked into, extracted into files, and in a chain into memory."""
        look(data, folder / "set.tar")
        transform(data, "train/set.tar", "untar", folder, dice, lands=True)
        if dice.random() < 0.1:
            packed = gzip.compress(data, 1, mtime=0)
            transform(packed, "set.tar.gz", "untar+tfrecord-index", folder, dice)


class CompressedFamily(Family):
    """gzip, xz and bzip2."""

    memory_bytes = 96 << 20  # what xz may take for a dictionary
    tokens = (
        b"\x1f\x8b\x08", b"\x1f\x8b\x08\x00" + bytes(6), b"\x1f\x8b\x08\x1f" + bytes(6), b"\xfd7zXZ\0\0\4", b"BZh9",
        b"1AY&SY", b"\x17rE8P\x90", b"\x03\0", b"YZ", b"\xff\xff\xff\xff", bytes(8), gzip.compress(b"", mtime=0),
        zlib.compress(bytes(1 << 22), 9, wbits=31), zlib.compress(b"more", wbits=31), b"\x21\x01\x27", b"\x21\x01\x28",
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        text, noise = b"the same again and again " * 200, dice.randbytes(900)
        named = gzip.compress(text, mtime=0)
        named = named[:3] + b"\x08" + named[4:10] + b"name\0" + named[10:]
        return [
            gzip.compress(text, mtime=0), named, gzip.compress(noise, 0, mtime=0), gzip.compress(noise, mtime=0),
            b"".join(gzip.compress(noise[n : n + 50], mtime=0) for n in range(0, 900, 50)),
            lzma.compress(text + noise), lzma.compress(noise, check=lzma.CHECK_CRC32) + lzma.compress(text),
            lzma.compress(text, preset=9), bz2.compress(text + noise), bz2.compress(text) + bz2.compress(noise, 1),
        ]  # fmt: skip

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """The trailer of gzip says what the stream holds; headers of xz have their checksums."""
        if data[:2] == b"\x1f\x8b":
            return gzip_repaired(data, dice)
        return xz_repaired(data) if data[:6] == b"\xfd7zXZ\0" else data

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """By each transform and reader."""
        with refused():
            gunzip(data, "a.gz", dice.choice((0, 100, 5000, 1 << 20)))
        transform(data, "a.bin.gz", "gunzip", folder, dice, lands=True)
        suffix = {b"\xfd": "xz", b"B": "bz2"}.get(data[:1], "gz")
        look(data, folder / f"set.tar.{suffix}")
        transform(data, f"set.tar.{suffix}", "untar", folder, dice)


def look(data: bytes, path: Path) -> None:
    """What the check of space takes from an archive; it never fails."""
    path.write_bytes(data)
    found = look_into(path)
    expect(found is None or min(found.beyond(1 << 40, 4096)) >= 0, "members take less than nothing")


def gzip_repaired(data: bytes, dice: random.Random) -> bytes:
    """What the first member's stream makes, as far as it goes, has its CRC-32 and size behind it."""
    flags = data[3] if len(data) > 3 else 0
    start = 10 if flags != 8 else max(data.find(b"\0", 10) + 1, 10)
    stream = zlib.decompressobj(wbits=-15)
    try:
        plain = stream.decompress(data[start:], 1 << 20)
    except zlib.error:
        return data
    if not stream.eof:
        return data
    end = len(data) - len(stream.unused_data)
    trailer = struct.pack("<II", zlib.crc32(plain), len(plain) + dice.choice((0, 0, 0, 0, 1, 1 << 31)) & 0xFFFFFFFF)
    return data[:end] + trailer + stream.unused_data[8:]


def xz_repaired(data: bytes) -> bytes:
    """The CRC-32 of the flags of the stream, and of the header of its first block (.xz file format 1.2, 2.1.1, 3.1)."""
    found = bytearray(data)
    found[8:12] = struct.pack("<I", zlib.crc32(found[6:8]))
    size = (found[12] + 1) * 4 if len(found) > 12 else 0
    if size and len(found) >= 12 + size:
        found[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(found[12 : 12 + size - 4]))
    return bytes(found)
