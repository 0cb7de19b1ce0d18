"""tf.train.Example: agreement with Google's protocol buffers both ways, and lengths that are never trusted."""

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord.example_pb2 import Example

from staging.errors import DataError
from staging.formats.example import decode_example, encode_example

Value = list[bytes] | list[float] | list[int]
names = st.text(st.characters(codec="utf-8"), max_size=6)
floats = st.lists(st.floats(width=32), max_size=5).map(lambda values: np.array(values, np.float32))
integers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5).map(lambda values: np.array(values, np.int64))
features = st.dictionaries(names, st.one_of(st.lists(st.binary(max_size=20), max_size=3), floats, integers), max_size=4)


def plain(values_by_name: dict[str, Any]) -> dict[str, Any]:
    """Comparable by value, with not-a-number equal to itself."""
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) and value.size else [bytes(part) for part in value]
        for name, value in values_by_name.items()
    }


def by_protobuf(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, feature in Example.FromString(data).features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind is None or kind == "bytes_list":
            found[name] = list(feature.bytes_list.value)
        elif kind == "float_list":
            found[name] = np.array(feature.float_list.value, np.float32)
        else:
            found[name] = np.array(feature.int64_list.value, np.int64)
    return found


@settings(deadline=None)
@given(features)
def test_bytes_equal_those_of_googles_library(given_features: dict[str, Any]) -> None:
    message = Example()
    message.features.SetInParent()
    for name, value in given_features.items():
        feature = message.features.feature[name]
        if isinstance(value, list):
            feature.bytes_list.value.extend(value)
            feature.bytes_list.SetInParent()
        elif value.dtype == np.float32:
            feature.float_list.value.extend(value.tolist())
            feature.float_list.SetInParent()
        else:
            feature.int64_list.value.extend(value.tolist())
            feature.int64_list.SetInParent()
    theirs = message.SerializeToString(deterministic=True)
    ours = encode_example(given_features)
    assert sorted(ours) == sorted(theirs)  # Google's order of names is not by code point in every version
    assert plain(by_protobuf(ours)) == plain(given_features)
    assert plain(decode_example(theirs)) == plain(decode_example(ours)) == plain(given_features)


def test_the_published_features_give_exactly_googles_bytes() -> None:
    message = Example()
    message.features.feature["x"].bytes_list.value.append(b"\x01\x00" * 100)
    message.features.feature["y"].float_list.value.extend([-0.896, 0.358, -0.770, 0.807])
    label = np.array([-0.896, 0.358, -0.770, 0.807], np.float32)
    ours = encode_example({"y": label, "x": b"\x01\x00" * 100})
    assert ours == message.SerializeToString(deterministic=True)


def test_unpacked_numbers_are_read() -> None:
    # field 1 of each list as single values: tag 0x0d is a 32-bit value, tag 0x08 a varint
    floats_unpacked = b"".join(b"\x0d" + np.float32(value).tobytes() for value in (1.5, -2.0))
    integers_unpacked = b"\x08\x05" + b"\x08" + b"\xff" * 9 + b"\x01"
    data = wrap(b"f", 2, floats_unpacked) + wrap(b"i", 3, integers_unpacked)
    assert plain(decode_example(data)) == plain(by_protobuf(data))
    found = decode_example(data)
    assert list(found["f"]) == [1.5, -2.0]
    assert list(found["i"]) == [5, -1]


def wrap(name: bytes, kind: int, values: bytes) -> bytes:
    """An Example of one feature; every length is below 128, so it is one byte."""
    feature = bytes([kind << 3 | 2, len(values)]) + values
    entry = bytes([0x0A, len(name)]) + name + bytes([0x12, len(feature)]) + feature
    inner = bytes([0x0A, len(entry)]) + entry
    return bytes([0x0A, len(inner)]) + inner


def test_unknown_fields_are_skipped() -> None:
    known = wrap(b"x", 1, b"\x0a\x03abc")
    unknown = b"\x78\x96\x01" + b"\x7a\x02hi" + b"\x7d" + bytes(4) + b"\x79" + bytes(8)
    for data in (unknown + known, known + unknown):
        assert plain(decode_example(data)) == plain(by_protobuf(data)) == {"x": [b"abc"]}


def test_the_last_of_two_features_of_a_name_counts() -> None:
    data = wrap(b"x", 1, b"\x0a\x03abc") + wrap(b"x", 1, b"\x0a\x03def")
    assert plain(decode_example(data)) == plain(by_protobuf(data)) == {"x": [b"def"]}


def test_bytes_are_views_into_the_record() -> None:
    record = bytearray(encode_example({"x": b"abc"}))
    [view] = decode_example(memoryview(record))["x"]
    assert view.obj is record


def test_cut_short_at_any_byte() -> None:
    whole = encode_example({"x": [b"abc" * 50], "y": np.ones(4, np.float32), "n": np.arange(300)})
    for length in range(1, len(whole)):
        with pytest.raises(DataError, match=r"^a\.tfrecord: is not a tf\.train\.Example \([^\n]*$"):
            decode_example(whole[:length], "a.tfrecord")


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_bytes_are_refused_or_read_as_googles_library_reads_them(data: st.DataObject) -> None:
    whole = bytearray(encode_example({"field": b"abc", "y": np.ones(2, np.float32), "integer": np.array([1, 300])}))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(whole))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_random_bytes_are_refused_or_read_as_googles_library_reads_them(data: bytes) -> None:
    agree(data)


def agree(data: bytes) -> None:
    try:
        found = decode_example(data)
    except DataError:
        return
    try:
        expected = by_protobuf(data)
    except DecodeError:
        return
    ours, theirs = plain(found), plain(expected)
    assert {name: ours[name] for name in theirs} == theirs  # Google's library leaves out an entry with unknown fields


def test_a_length_of_many_terabytes_takes_no_memory() -> None:
    with pytest.raises(DataError, match=r"field 1 says \d+ bytes and 3 are there"):
        decode_example(b"\x0a\xff\xff\xff\xff\xff\xff\x1fabc")


def test_floats_of_a_broken_length() -> None:
    with pytest.raises(DataError, match="5 bytes of floats are not a multiple of 4"):
        decode_example(wrap(b"y", 2, b"\x0a\x05abcde"))


def test_a_type_that_the_format_has_not() -> None:
    with pytest.raises(TypeError, match="not float64"):
        encode_example({"y": np.ones(4)})


def test_a_sample_of_the_published_size() -> None:
    counts = np.random.default_rng(0).poisson(0.4, (128, 128, 128, 4)).astype(np.int16)
    label = np.array([-0.896, 0.358, -0.770, 0.807], np.float32)
    found = decode_example(encode_example({"x": counts.tobytes(), "y": label}))
    [x] = found["x"]
    assert np.array_equal(np.frombuffer(x, "<i2").reshape(128, 128, 128, 4), counts)
    assert list(found["y"]) == list(label)
