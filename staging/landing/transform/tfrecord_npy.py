"""Transform ``tfrecord-to-npy``: a CosmoFlow sample becomes ``<stem>_data.npy`` and ``<stem>_label.npy``.

The TFRecord, plain or gzip, holds one ``tf.train.Example`` with ``x``, the raw little-endian int16 of an array
(S, S, S, C), and ``y``, float32. It gives neither S nor C: C is the option ``channels`` (4, as published) and S is the
cube root of what is left, or the option ``size``. The file's name gives neither.
"""

from __future__ import annotations

import numpy as np

from staging.errors import DataError
from staging.formats.compression import MAGIC, gunzip
from staging.formats.example import decode_example
from staging.formats.npy import npy_header
from staging.formats.regular import MOST_BYTES, ROOM
from staging.landing.transform.dali_index import scan_records
from staging.landing.transform.gunzip import EXPANSION, without_gz
from staging.landing.transform.options import LEAVE, Options, positive, refuse_unknown
from staging.landing.transform.whole import Output, WholeTransform

CHECK = "check that it is a CosmoFlow TFRecord"
FRAME_BYTES = 1024  # the most that framing, feature names and the label take, for the estimate of space
NPY_HEADERS = 2 * 128


class TFRecordToNpy(WholeTransform):
    """Counts (S, S, S, ``channels``) int16 and the label (n,) float32 as npy; ``size`` is S, 0 for what fits."""

    suffixes = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def __init__(self, channels: int = 4, size: int = 0) -> None:
        self.channels = channels
        self.size = size

    @classmethod
    def from_options(cls, options: Options) -> TFRecordToNpy:
        """The transform with the options after its name."""
        refuse_unknown("tfrecord-to-npy", options, ["channels", "size"])
        size = positive("tfrecord-to-npy", options, "size", 1) if "size" in options else 0
        return cls(positive("tfrecord-to-npy", options, "channels", 4), size)

    def names(self, name: str) -> list[str]:
        """``<stem>_data.npy`` and ``<stem>_label.npy``; ``.gz`` and ``.tfrecord`` are not part of the stem."""
        stem = without_gz(name)
        for suffix in (".tfrecord", ".tfrecords"):
            stem = stem.removesuffix(suffix)
        return [f"{stem}_data.npy", f"{stem}_label.npy"]

    def output_bytes(self, name: str, size: int) -> int:
        """The size if it is that of a plain sample, or else, for a gzip one, the size times the expected expansion.

        The headers of the arrays are added.
        """
        side = int((max(size, 0) / (2 * self.channels)) ** (1 / 3) + 1e-6)
        plain = 0 < size - 2 * self.channels * side**3 <= FRAME_BYTES
        return (size if plain else size * EXPANSION) + NPY_HEADERS

    def convert(self, name: str, data: memoryview) -> list[Output]:
        """Both arrays; the counts are a view of the record. Raises ``DataError`` if the record is anything else."""
        most = 2 * self.channels * self.size**3 + ROOM if self.size else MOST_BYTES
        plain = memoryview(gunzip(data, name, most)) if data[:2] == MAGIC else data
        records = self._records(name, plain)
        if len(records) != 1:
            raise DataError(name, f"holds {len(records)} records where one is expected", CHECK)
        features = decode_example(plain[12:-4], name)
        counts, label = features.get("x"), features.get("y")
        if not isinstance(counts, list) or len(counts) != 1:
            raise DataError(name, "has no feature 'x' of one string of bytes", CHECK)
        if not isinstance(label, np.ndarray) or label.dtype != np.float32 or not label.size:
            raise DataError(name, "has no feature 'y' of float32", CHECK)
        shape = self._shape(name, len(counts[0]))
        data_name, label_name = self.names(name)
        # the label first, so that a file of counts is never without one
        return [
            (label_name, [npy_header(label.shape, "<f4"), label.astype("<f4", copy=False)]),
            (data_name, [npy_header(shape, "<i2"), counts[0]]),
        ]

    def _records(self, name: str, plain: memoryview) -> list[tuple[int, int]]:
        """Where its records are; if the name is not a TFRecord's either, the error says what to do with such files."""
        try:
            return scan_records(name, plain)
        except DataError as error:
            if name.endswith(self.suffixes):
                raise
            raise DataError(name, error.problem, LEAVE) from None

    def _shape(self, name: str, size: int) -> tuple[int, int, int, int]:
        side = self.size or round((size / (2 * self.channels)) ** (1 / 3))
        needed = 2 * self.channels * side**3
        if not size or size != needed:
            form = f"({side}, {side}, {side}, {self.channels})"
            problem = f"feature 'x' has {size} bytes and int16 {form} has {needed}"
            raise DataError(name, problem, "set tfrecord-to-npy:channels=C,size=S to the file's")
        return side, side, side, self.channels
