"""Configuration of DeepCAM runs; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hpcbench.config.bounds import within
from hpcbench.config.schema import READING_ONLY, DataConfig, RunConfig, SimulateConfig
from staging.errors import InputError

CLASSES = ("background", "tropical_cyclone", "atmospheric_river")
"""The three classes, by label value."""

CHANNELS = (
    "TMQ", "U850", "V850", "UBOT", "VBOT", "QREFHT", "PS", "PSL",
    "T200", "T500", "PRECT", "TS", "TREFHT", "Z1000", "Z200", "ZBOT",
)  # fmt: skip
"""The sixteen variables, in the order of the published files."""


@dataclass
class DeepCAMData(DataConfig):
    """DeepCAM samples: sixteen float32 fields (height, width, 16) and a class per pixel (height, width)."""

    format: Literal["hdf5", "npy"] = "hdf5"
    """On-disk form of a sample."""
    height: int = field(default=768, metadata=within(16, 2**15))
    """Rows (latitude), a multiple of 16."""
    width: int = field(default=1152, metadata=within(16, 2**15))
    """Columns (longitude), a multiple of 16."""
    channels: list[int] = field(
        default_factory=lambda: list(range(16)), metadata={READING_ONLY: True, **within(0, len(CHANNELS) - 1)}
    )
    """The variables, out of sixteen, that the model sees."""


@dataclass
class DeepCAMModel:
    """DeepLabv3+ on a modified aligned Xception; smaller models keep the structure."""

    width_factor: float = field(default=1.0, metadata=within(0, 8, open_low=True))
    """Factor on every channel count of the published model."""
    middle_blocks: int = field(default=16, metadata=within(0, 1024))
    """Blocks in the middle flow of the encoder."""


@dataclass
class DeepCAMSimulate(SimulateConfig):
    """Simulated climate: a climatology with weather, cyclones and atmospheric rivers, labelled by a detector."""

    cyclones_per_sample: float = field(default=2.5, metadata=within(0, 1000))
    """Mean number of tropical cyclones in a global sample; coarse grids hold fewer but larger ones."""
    rivers_per_sample: float = field(default=4.0, metadata=within(0, 1000))
    """Mean number of atmospheric rivers in a global sample."""


@dataclass
class Config(RunConfig):
    """A DeepCAM run."""

    data: DeepCAMData = field(default_factory=DeepCAMData)
    model: DeepCAMModel = field(default_factory=DeepCAMModel)
    simulate: DeepCAMSimulate = field(default_factory=DeepCAMSimulate)

    def validate(self) -> None:
        super().validate()
        for name in ("height", "width"):
            value = getattr(self.data, name)
            if value % 16:
                raise InputError(f"data.{name} ({value}) must be a multiple of 16, the stride of the encoder")
        if self.data.height * self.data.width == 16 * 16 and (
            self.train.local_batch_size == 1 or self.data.last_batch == "keep"
        ):
            raise InputError(
                "data.height and data.width of 16 leave batch norm one value in a batch of one sample, too few to "
                "train on; set train.local_batch_size 2 and data.last_batch drop, or a larger grid"
            )
        if len(set(self.data.channels)) != len(self.data.channels) or not self.data.channels:
            raise InputError(f"data.channels ({self.data.channels}) must name at least one channel, each once")
