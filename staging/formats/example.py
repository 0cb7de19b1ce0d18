"""The protocol buffer tf.train.Example, encoded and decoded without TensorFlow and without copying byte values.

``Example{1: Features{1: map<string, Feature>}}`` with ``Feature{1: BytesList | 2: FloatList | 3: Int64List}``, each
list ``{1: repeated value}``, as in TensorFlow's ``example.proto`` and ``feature.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from staging.errors import DataError
from staging.formats.compression import Buffer

Feature = list[memoryview] | npt.NDArray[Any]

BYTES, FLOAT, INT64 = 1, 2, 3
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 1 << 18
"""The most fields and packed integers of an Example that are decoded, which takes less than a second."""


def encode_example(features: Mapping[str, Buffer | Sequence[Buffer] | npt.NDArray[Any]]) -> bytes:
    """Encode features by name: bytes (or a list of them), a float32 array or an int64 array, flattened in C order.

    Names are sorted, so that equal features give equal bytes. Raises ``TypeError`` for an array of another type.
    """
    entries: list[Buffer] = []
    for name in sorted(features):
        key = name.encode()
        entry = _delimited(1, [key]) + _delimited(2, _feature(features[name]))
        entries += _delimited(1, entry)
    return b"".join(_delimited(1, entries))


def decode_example(data: Buffer, path: object = "tf.train.Example") -> dict[str, Feature]:
    """Decode to features by name: a list of memoryviews into ``data``, a float32 (n,) array or an int64 (n,) array.

    Packed and unpacked numbers are read and unknown fields skipped. Raises ``DataError`` naming ``path`` if a
    length or tag does not fit the data, and for more than ``MOST_FIELDS`` fields and packed integers, since millions
    take minutes. A feature without a value is an empty list.
    """
    features_by_name: dict[str, Feature] = {}
    message = _Message(memoryview(data), iter(range(MOST_FIELDS)))
    try:
        for features in message.submessages(1):
            for entry in features.submessages(1):
                names = list(entry.submessages(1))
                name = bytes(names[-1].data).decode() if names else ""
                features_by_name[name] = _value(list(entry.submessages(2)))
    except (_Malformed, UnicodeDecodeError) as error:
        raise DataError(path, f"is not a tf.train.Example ({error})", "check what wrote it, or copy it again") from None
    return features_by_name


class _Malformed(Exception):  # noqa: N818  # never leaves this module
    pass


def _feature(value: Buffer | Sequence[Buffer] | npt.NDArray[Any]) -> list[Buffer]:
    if isinstance(value, np.ndarray):
        if value.dtype == np.float32:
            packed: Buffer = value.astype("<f4", copy=False).tobytes()
            return _delimited(FLOAT, _delimited(1, [packed]) if packed else [])
        if value.dtype == np.int64:
            packed = b"".join(_varint(int(number) & 0xFFFFFFFFFFFFFFFF) for number in value.flat)
            return _delimited(INT64, _delimited(1, [packed]) if packed else [])
        raise TypeError(f"a feature is bytes, float32 or int64, not {value.dtype}")
    values = [value] if isinstance(value, bytes | bytearray | memoryview) else value
    return _delimited(BYTES, [part for item in values for part in _delimited(1, [item])])


def _delimited(field: int, parts: list[Buffer]) -> list[Buffer]:
    """Field ``field`` holding the joined ``parts``; they are joined only once, at the end."""
    return [_varint(field << 3 | DELIMITED) + _varint(sum(memoryview(part).nbytes for part in parts)), *parts]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(data: memoryview, offset: int) -> tuple[int, int]:
    """The unsigned 64-bit number at ``offset`` and the offset after it."""
    number = 0
    for index in range(10):
        if offset + index >= len(data):
            raise _Malformed("a number is cut short")
        byte = data[offset + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, offset + index + 1
    raise _Malformed("a number has more than ten bytes")


class _Message:
    """A message of fields; all messages of an Example draw from one ``budget`` of fields."""

    def __init__(self, data: memoryview, budget: Iterator[int]) -> None:
        self.data = data
        self.budget = budget

    def fields(self) -> Iterator[tuple[int, int, memoryview, int]]:
        """Each field: its number, wire type, bytes, and value if it is a varint."""
        data, offset = self.data, 0
        while offset < len(data):
            self.spend()
            tag, offset = _read_varint(data, offset)
            field, wire = tag >> 3, tag & 7
            start, number = offset, 0
            if wire == VARINT:
                number, offset = _read_varint(data, offset)
            elif wire == DELIMITED:
                length, start = _read_varint(data, offset)
                offset = start + length
            elif wire in (FIXED32, FIXED64):
                offset += 4 if wire == FIXED32 else 8
            else:
                raise _Malformed(f"wire type {wire} is not known")
            if not 0 < field < 1 << 29:
                raise _Malformed(f"field number {field} is not allowed")
            if offset > len(data):
                raise _Malformed(f"field {field} says {offset - start} bytes and {len(data) - start} are there")
            yield field, wire, data[start:offset], number

    def submessages(self, field: int) -> Iterator[_Message]:
        """The length-delimited values of field ``field``."""
        return (
            _Message(value, self.budget)
            for number, wire, value, _ in self.fields()
            if number == field and wire == DELIMITED
        )

    def spend(self) -> None:
        """Count one more field or packed integer."""
        if next(self.budget, None) is None:
            raise _Malformed(f"it has more than {MOST_FIELDS} fields")


def _value(messages: list[_Message]) -> Feature:
    """The value of a Feature; of several kinds the last one counts, and pieces of one kind are joined."""
    kind, lists = 0, list[_Message]()
    for message in messages:
        for field, wire, value, _ in message.fields():
            if field in (BYTES, FLOAT, INT64) and wire == DELIMITED:
                if field != kind:
                    kind, lists = field, []
                lists.append(_Message(value, message.budget))
    if kind == FLOAT:
        return _floats(lists)
    if kind == INT64:
        return _integers(lists)
    return [value.data for part in lists for value in part.submessages(1)]


def _floats(lists: list[_Message]) -> npt.NDArray[np.float32]:
    pieces = []
    for part in lists:
        for field, wire, value, _ in part.fields():
            if field == 1 and wire in (DELIMITED, FIXED32):
                if len(value) % 4:
                    raise _Malformed(f"{len(value)} bytes of floats are not a multiple of 4")
                pieces.append(np.frombuffer(value, "<f4"))
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else np.empty(0, np.float32)
    return joined.astype(np.float32, copy=False)


def _integers(lists: list[_Message]) -> npt.NDArray[np.int64]:
    numbers = []
    for part in lists:
        for field, wire, value, number in part.fields():
            if field == 1 and wire == VARINT:
                numbers.append(number)
            elif field == 1 and wire == DELIMITED:
                offset = 0
                while offset < len(value):
                    part.spend()
                    packed, offset = _read_varint(value, offset)
                    numbers.append(packed)
    return np.array(numbers, np.uint64).astype(np.int64)
