"""Bytes of a DeepCAM sample in each form, for planning without data; imports no torch."""

from __future__ import annotations

from apps.deepcam.config import CHANNELS, DeepCAMData
from hpcbench.data.sample_size import SampleSize

PUBLISHED_FILES = 151_583
"""Samples of the published set: 121,266 for training, 15,158 for validation and 15,159 for tests."""
HDF5_BYTES = 2048
"""Approximate size of a file's structure and statistics."""
NPY_HEADER = 128


def sample_size(data: DeepCAMData) -> SampleSize:
    """Return the size of a sample in the form of ``data``; HDF5 has two sets of labels as float32, npy one as bytes."""
    pixels = data.height * data.width
    fields = 4 * len(CHANNELS) * pixels
    if data.format == "npy":
        return SampleSize(fields + pixels + 2 * NPY_HEADER, fields)
    return SampleSize(fields + 2 * 4 * pixels + HDF5_BYTES, fields)
