"""Speed of reading a gzip CosmoFlow TFRecord against Python's gzip and the tfrecord package, and the cost of a span.

``python benchmarks/formats.py`` writes ``benchmarks/results/formats.json``. The sample has the published size,
128^3 x 4 int16 counts, and is compressed by zlib at level 6, as the published files are. Each way reads the file
(from the page cache), decompresses it, and returns the counts as an array and the label; our reader and the peer with
Python's gzip verify both CRC32C values, the tfrecord package verifies neither.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _common import Paired, paired, write_results
from tfrecord.reader import tfrecord_loader

from staging.formats import tfrecord
from staging.formats.compression import gzip_bytes
from staging.formats.example import decode_example, encode_example
from staging.phase_timer import PhaseTimer

Sample = tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]
SHAPE = (128, 128, 128, 4)


def clustered_counts(seed: int, per_cell: float = 1.0) -> npt.NDArray[np.int16]:
    """Poisson counts (``SHAPE``) of a lognormal field with power ~ k^-1.5 that grows from channel to channel."""
    random = np.random.default_rng(seed)
    size = SHAPE[0]
    axis = np.fft.fftfreq(size) * size
    k = np.sqrt(axis[:, None, None] ** 2 + axis[:, None] ** 2 + (np.arange(size // 2 + 1)) ** 2)
    k[0, 0, 0] = np.inf
    field = np.fft.irfftn(np.fft.rfftn(random.standard_normal((size,) * 3)) * k**-0.75, s=(size,) * 3, axes=(0, 1, 2))
    field /= field.std()
    channels = [np.exp(growth * field - growth**2 / 2) for growth in (0.5, 0.9, 1.3, 1.6)]
    rate = np.stack([per_cell * channel / channel.mean() for channel in channels], axis=-1)
    counts: npt.NDArray[np.int16] = random.poisson(np.minimum(rate, 30_000)).astype(np.int16)
    return counts


def read_ours(path: Path) -> Sample:
    [record] = tfrecord.read_records(path, "gzip")
    return unpack(decode_example(record, path))


def read_with_python_gzip(path: Path) -> Sample:
    plain = gzip.decompress(path.read_bytes())
    [record] = tfrecord._records(tfrecord._Memory(plain), path)
    return unpack(decode_example(record, path))


def read_with_tfrecord_package(path: Path) -> Sample:
    [features] = tfrecord_loader(str(path), None, {"x": "byte", "y": "float"}, compression_type="gzip")
    return np.frombuffer(features["x"], "<i2").reshape(SHAPE), np.asarray(features["y"], np.float32)


def unpack(features: dict[str, Any]) -> Sample:
    [counts] = features["x"]
    return np.frombuffer(counts, "<i2").reshape(SHAPE), features["y"]


def span_cost_s(rounds: int, spans_per_round: int = 20_000) -> float:
    """Median processor seconds of one empty span."""
    costs = []
    for _ in range(rounds):
        timer = PhaseTimer()
        start = time.process_time()
        for _ in range(spans_per_round):
            with timer.span("step"):
                pass
        costs.append((time.process_time() - start) / spans_per_round)
    return float(np.median(costs))


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    counts, label = clustered_counts(seed=2019), np.array([-0.896, 0.358, -0.770, 0.807], np.float32)
    path = folder / "sample.tfrecord"
    tfrecord.write_records(path, [encode_example({"x": counts.tobytes(), "y": label})], "none")
    raw = path.read_bytes()
    path.write_bytes(gzip.compress(raw, 6, mtime=0))
    for read in (read_ours, read_with_python_gzip, read_with_tfrecord_package):
        read_counts, read_label = read(path)
        assert np.array_equal(read_counts, counts)
        assert np.array_equal(read_label, label)
    ours = ("staging", lambda: read_ours(path))
    python = ("Python's gzip", lambda: read_with_python_gzip(path))
    package = ("tfrecord package", lambda: read_with_tfrecord_package(path))
    write = paired(
        ("gzip_bytes", lambda: gzip_bytes(raw, 6)), ("gzip.compress", lambda: gzip.compress(raw, 6)), rounds=3, warmup=0
    )
    return {
        "sample_bytes": len(raw),
        "zlib_level_6_bytes": path.stat().st_size,
        "our_level_6_bytes": len(gzip_bytes(raw, 6)),
        "mean_count": float(counts.mean()),
        "zero_fraction": float((counts == 0).mean()),
        "decode_against_python_gzip": paired(ours, python, rounds=rounds, repeats=4, target=3.0),
        "decode_against_tfrecord_package": paired(ours, package, rounds=rounds, repeats=4, target=4.0),
        "decode_against_python_gzip_processor_time": paired(
            ours, python, rounds=rounds, repeats=4, clock=time.process_time
        ),
        "compress_against_python_gzip": write,
        "span_s": span_cost_s(rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="paired rounds of each comparison")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), options.rounds)
    for name, value in results.items():
        print(f"{name}: {value}")
    print(f"written to {write_results('formats', results)}")
    missed = [name for name, value in results.items() if isinstance(value, Paired) and not value.met]
    raise SystemExit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
