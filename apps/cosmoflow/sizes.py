"""Bytes of a CosmoFlow sample in each form, for planning without data; imports no torch."""

from __future__ import annotations

from apps.cosmoflow.config import PARAMETERS, CosmoFlowData
from hpcbench.data.sample_size import SampleSize

PUBLISHED_CELLS = 128**3 * 4
PUBLISHED_GZIP_BYTES = 2_830_000
"""A compressed sample of the published set: 1.67 TB of 524,288 + 65,536 samples, given as 1.7 TB."""
TFRECORD_BYTES = 55 + 4 * len(PARAMETERS)
"""Framing, names of the features, and labels."""
NPY_HEADER = 128
HDF5_BYTES = 4096
"""Approximate size of a file's structure."""


def sample_size(data: CosmoFlowData) -> SampleSize:
    """Return the size of a sample in the form of ``data``. gzip is taken to save as much as for published samples."""
    cells = data.sample_size**3 * data.channels
    counts = 2 * cells
    if data.format == "npy":
        return SampleSize(counts + 2 * NPY_HEADER + 4 * len(PARAMETERS), counts)
    if data.compression == "gzip":
        return SampleSize(round(cells / PUBLISHED_CELLS * PUBLISHED_GZIP_BYTES), counts)
    return SampleSize(counts + (TFRECORD_BYTES if data.format == "tfrecord" else HDF5_BYTES), counts)
