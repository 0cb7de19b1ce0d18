"""The published problems: bytes of a set and operations of a sample, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from hpcbench.mlperf.run_record import RunRecord

SAME_SAMPLES = 1e-3
"""Some logs give the samples that their loader takes, up to this fraction fewer than those of the set."""


@dataclass(frozen=True)
class PublishedSet:
    """The data of an application as rounds have them. A set is identified by its number of training samples."""

    application: str
    name: str
    train_samples: int
    validation_samples: int
    stored_bytes: float
    """Bytes of the training and validation samples as published."""
    decoded_bytes: float
    """The same without compression."""
    training_flops: int
    """Operations of a training sample, forward and backward: ``hpcbench.measure.flops`` on the published network."""
    source: str


COSMOFLOW_SAMPLE = 128**3 * 4 * 2
"""Bytes of a sample: 128 x 128 x 128 cells, 4 redshifts, counts of 16 bits."""
DEEPCAM_SAMPLE = 768 * 1152 * (16 + 2) * 4
"""Bytes of a sample: 768 x 1,152 points, 16 channels and two sets of labels, 32 bits each."""
SETS = (
    PublishedSet(
        "cosmoflow", "CosmoFlow v0.7", 262_144, 65_536, (262_144 + 65_536) * COSMOFLOW_SAMPLE,
        (262_144 + 65_536) * COSMOFLOW_SAMPLE, 56_933_533_184,
        "cosmoUniverse_2019_05_4parE_tf, not compressed, stated as 5.1 TB; convolutions of 2 x 2 x 2",
    ),
    PublishedSet(
        "cosmoflow", "CosmoFlow", 524_288, 65_536, 1.7e12, (524_288 + 65_536) * COSMOFLOW_SAMPLE,
        192_090_785_280, "cosmoUniverse_2019_05_4parE_tf_v2, gzip, stated as 1.7 TB; convolutions of 3 x 3 x 3",
    ),
    PublishedSet(
        "deepcam", "DeepCAM", 121_266, 15_158, (121_266 + 15_158) * DEEPCAM_SAMPLE,
        (121_266 + 15_158) * DEEPCAM_SAMPLE, 1_963_974_567_936,
        "All-Hist, HDF5, not compressed, stated as 8.8 TB with 15,159 samples for tests",
    ),
)  # fmt: skip


def set_of(record: RunRecord) -> PublishedSet | None:
    """The published set of a run; ``None`` where it trains on other samples."""
    sets = (published for published in SETS if published.application == record.application)
    return next((published for published in sets if same_samples(published.train_samples, record.train_samples)), None)


def same_samples(one: int | None, other: int | None) -> bool:
    """Whether two numbers of training samples are those of one set."""
    return one is not None and other is not None and abs(one - other) <= SAME_SAMPLES * max(one, other)
