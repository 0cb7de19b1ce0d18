"""TFRecords and the examples in them; what is repaired are the lengths and both CRC32C of a record."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

import numpy as np

from staging.formats.example import decode_example, encode_example
from staging.formats.tfrecord import masked_crc32c, read_record, read_records
from tests.staging.fuzz.allowed import expect, refused
from tests.staging.fuzz.family import Family
from tests.staging.fuzz.sinks import transform

DELIMITED = 2
VARINTS = (b"\x00", b"\x7f", b"\x80\x01", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 9 + b"\x02", b"\xff\xff\x03")


def framed(payload: bytes, length: int | None = None) -> bytes:
    """A record, which may say another length."""
    head = struct.pack("<Q", len(payload) if length is None else length)
    return head + struct.pack("<I", masked_crc32c(head)) + payload + struct.pack("<I", masked_crc32c(payload))


def sample(dice: random.Random, side: int = 2) -> bytes:
    """An example as CosmoFlow has it."""
    counts = dice.randbytes(2 * 4 * side**3)
    return encode_example({"x": counts, "y": np.array([dice.random() for _ in range(4)], np.float32)})


class TFRecordFamily(Family):
    """Records, plain and as gzip."""

    tokens = (
        framed(b""), framed(b"one"), framed(b"one", 1 << 60), framed(b"one", (1 << 64) - 1), framed(b"", 4),
        b"\x1f\x8b\x08", bytes(12), b"\xff" * 8, b"\x0a\x00",
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        example = sample(dice)
        many = b"".join(framed(dice.randbytes(number % 7)) for number in range(300))
        return [framed(example), framed(b""), framed(example) * 3, many, gzip.compress(framed(example), mtime=0)]

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """Record by record; now and then a length stays that is too large, and only its CRC32C is right."""
        if data[:2] == b"\x1f\x8b":
            return gzip.compress(self.repair(framed(sample(dice)) + data[20:], dice), 1, mtime=0)
        made: list[bytes] = []
        place = 0
        while place < len(data) and len(made) < 400:
            room = max(len(data) - place - 16, 0)
            said = int.from_bytes(data[place : place + 8], "little")
            length = said if said <= room else dice.randint(0, min(room, 300)) if dice.random() < 0.8 else room
            wrong = said if said > room and dice.random() < 0.3 else None
            made.append(framed(data[place + 12 : place + 12 + length], wrong))
            place += 16 + length
        return b"".join(made)

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """By the readers of a training, and by the transforms."""
        path = folder / "a.tfrecord"
        path.write_bytes(data)
        with refused():
            read = [bytes(record) for record in read_records(path, "none")]
            expect(b"".join(map(framed, read)) == data, "records that are not those of the file")
        with refused():
            decode_example(read_record(path, "none", 1 << 20), path)
        with refused():
            for record in read_records(path, "gzip", 1 << 20):
                decode_example(record, path)
        transform(data, "train/a.tfrecord", "tfrecord-index", folder, dice, lands=True)
        transform(data, "a.tfrecord", f"tfrecord-to-npy:size={dice.choice((1, 2, 64))}", folder, dice)
        transform(data, "a.tfrecord.gz", "gunzip+tfrecord-to-npy", folder, dice)


class ExampleFamily(Family):
    """The protocol buffer alone; what is repaired are the lengths of its messages."""

    tokens = (
        *VARINTS, b"\x0a", b"\x12", b"\x1a", b"\x0a\x00", b"\x12\x00", b"\x08\x01", b"\x0d" + bytes(4),
        b"\x09" + bytes(8),
        b"\x0b", b"\x0c", b"\x0f", b"\x0a\x01x", b"\x0a\x01y", b"\xff", b"\x12\x06\x0a\x04\x0a\x02\x08\x01",
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        many: dict[str, bytes] = {f"feature/{number}": b"v" * number for number in range(60)}
        numbers = np.array([0, 1, -1, 1 << 62, -(1 << 63)] * 40, np.int64)
        unpacked = bytes.fromhex("0a0c0a0a0a0178120512030801 10".replace(" ", ""))
        return [
            sample(dice), encode_example({"x": [b"a", b"", b"ccc"], "n": numbers, "y": np.ones(9, np.float32)}),
            encode_example(many), unpacked, b"",
        ]  # fmt: skip

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """Each message says as many bytes as it has; a little of it still lies."""
        return fields_repaired(data, 0, dice)

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """Alone, and as the one record of a file that is transformed."""
        with refused():
            found = decode_example(data, "a.tfrecord")
            expect(all(isinstance(name, str) for name in found), "a name that is no text")
            size = sum(sum(map(len, value)) if isinstance(value, list) else value.size for value in found.values())
            expect(size <= len(data), "more values than bytes")
        transform(framed(data), "a.tfrecord", "tfrecord-to-npy", folder, dice)


def fields_repaired(data: bytes, depth: int, dice: random.Random) -> bytes:
    """The fields of a message, with the lengths that they have, down to the values of a feature."""
    made, place = b"", 0
    while place < len(data) and len(made) < 1 << 17:
        tag = data[place]
        place += 1
        if tag & 7 != DELIMITED or place >= len(data):
            made += bytes([tag])
            continue
        length = min(data[place], len(data) - place - 1)
        if data[place] >= 0x80 and place + 1 < len(data):
            length = min(data[place] & 0x7F | data[place + 1] << 7, len(data) - place - 2)
            place += 1
        value = data[place + 1 : place + 1 + length]
        place += 1 + length
        if depth < 5:
            value = fields_repaired(value, depth + 1, dice)
        said = len(value) if dice.random() < 0.99 else dice.choice((0, 1, len(value) + 1, (1 << 64) - 1, 1 << 40))
        made += bytes([tag]) + varint(said) + value
    return made


def varint(number: int) -> bytes:
    """As protocol buffers write it."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])
