"""Files sent through a transform, and samples of both applications to send: what lands, or what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tfrecord.writer import TFRecordWriter

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.landing.transforms import sink_maker
from tests.staging.opened import opened

TIME = 1_500_000_000_000_000_000
PLAIN = bytes(range(256)) * 300
COUNTS = np.random.default_rng(0).poisson(0.4, (6, 6, 6, 4)).astype(np.int16)
LABEL = np.array([0.5, -0.25, 1, -1], np.float32)


def land(folder: Path, transform: str, name: str, data: bytes, piece: int | None = None) -> list[Landed]:
    """Send ``data`` through ``transform`` below ``folder``, in pieces whose buffer is used again."""
    sink = sink_maker(transform)(opened(folder), name, len(data), TIME)
    try:
        size = piece or max(len(data), 1)
        for start in range(0, len(data), size):
            buffer = bytearray(data[start : start + size])
            sink.write(memoryview(buffer))
            buffer[:] = b"\xee" * len(buffer)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def problem(folder: Path, transform: str, name: str, data: bytes, piece: int | None = None) -> str:
    with pytest.raises(DataError) as error:
        land(folder, transform, name, data, piece)
    assert files(folder) == {}, "nothing stays behind"
    assert "\n" not in str(error.value)
    return str(error.value)


def cosmoflow(folder: Path, counts: np.ndarray = COUNTS, records: int = 1) -> bytes:
    writer = TFRecordWriter(str(folder / "sample"))
    for _ in range(records):
        writer.write({"x": (counts.tobytes(), "byte"), "y": (LABEL.tolist(), "float")})
    writer.close()
    data = (folder / "sample").read_bytes()
    (folder / "sample").unlink()
    return data


def hdf5(folder: Path, arrays: dict[str, Any], **form: Any) -> bytes:
    with h5py.File(folder / "sample", "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array, **form)
    data = (folder / "sample").read_bytes()
    (folder / "sample").unlink()
    return data
