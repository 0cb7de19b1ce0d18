"""Configuration of CosmoFlow runs; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hpcbench.config.bounds import within
from hpcbench.config.schema import READING_ONLY, DataConfig, RunConfig, SimulateConfig
from staging.errors import InputError
from staging.units import counted

PARAMETERS = ("omega_m", "sigma_8", "n_s", "h_0")
"""The four targets, in the order of the published labels."""

MOST_CHANNELS = 8192
"""Most channels of a block, 16 times the published maximum; the kernels of more would be tens of gigabytes."""


@dataclass
class CosmoFlowData(DataConfig):
    """CosmoFlow samples: int16 particle counts (size, size, size, channels) and four labels in [-1, 1]."""

    format: Literal["tfrecord", "hdf5", "npy"] = "tfrecord"
    """On-disk form of a sample."""
    compression: Literal["none", "gzip"] = "gzip"
    """Compression of TFRecords (the whole file; the v0.7 set has none, later sets gzip) and of simulated HDF5."""
    sample_size: int = field(default=128, metadata=within(1, 2048))
    """Cells along an edge of a sample."""
    channels: int = field(default=4, metadata=within(1, 256))
    """Redshift snapshots of a sample."""
    apply_log: bool = field(default=True, metadata={READING_ONLY: True})
    """Input is ln(1 + count); otherwise count over the sample's mean."""
    input_mean: list[float] = field(default_factory=list, metadata={READING_ONLY: True, **within(-1e6, 1e6)})
    """Mean of each channel of the input, subtracted from it (open division); empty leaves the input as published."""
    input_std: list[float] = field(default_factory=list, metadata={READING_ONLY: True, **within(0, 1e6, open_low=True)})
    """Standard deviation that each channel is divided by; `hpcbench data inspect` prints both for ln(1 + count)."""
    augment: bool = field(default=False, metadata={READING_ONLY: True})
    """Draw one of the 48 symmetries of the cube for every sample and epoch (open division)."""


@dataclass
class CosmoFlowModel:
    """The CosmoFlow network: convolution blocks, each halving the volume, and a dense head."""

    conv_layers: int = field(default=5, metadata=within(1, 11))
    """Convolution blocks."""
    base_channels: int = field(default=32, metadata=within(1, 4096))
    """Channels of the first block; every further block doubles them."""
    kernel_size: Literal[2, 3] = 3
    """3 is v1.0 and later, 2 is v0.7."""
    pooling: Literal["max", "mean"] = "max"
    """How a block halves the volume: maximum as in MLPerf HPC, or mean as in CosmoFlow's first form (SC18)."""
    dropout: float = field(default=0.5, metadata=within(0, 1, open_high=True))
    """Dropout rate after the two hidden dense layers."""


@dataclass
class CosmoFlowSimulate(SimulateConfig):
    """Simulated universes: Gaussian initial conditions, Lagrangian perturbation theory, particle counts."""

    universe_size: int = field(default=128, metadata=within(1, 8192))
    """Cells along an edge of a universe, a multiple of ``data.sample_size``; cut into sub-volumes as published."""
    cell_mpc_h: float = field(default=4.0, metadata=within(0, 1e4, open_low=True))
    """Edge of a cell in Mpc/h."""
    redshifts: list[float] = field(default_factory=lambda: [3.0, 1.5, 0.5, 0.0], metadata=within(0, 1100))
    """Redshift of each channel."""
    particles_per_cell: int = field(default=1, metadata=within(1, 1000))
    """Mean number of particles in a cell, a cube number (1, 8, 27, ...)."""


@dataclass
class Config(RunConfig):
    """A CosmoFlow run."""

    data: CosmoFlowData = field(default_factory=CosmoFlowData)
    model: CosmoFlowModel = field(default_factory=CosmoFlowModel)
    simulate: CosmoFlowSimulate = field(default_factory=CosmoFlowSimulate)

    def validate(self) -> None:
        super().validate()
        widest = self.model.base_channels * 2 ** (self.model.conv_layers - 1)
        if widest > MOST_CHANNELS:
            raise InputError(
                f"model.base_channels ({self.model.base_channels}) makes {widest} channels in the last of "
                f"{self.model.conv_layers} blocks, at most {MOST_CHANNELS} are allowed; lower it or model.conv_layers"
            )
        smallest = 2**self.model.conv_layers
        if self.data.sample_size < smallest or self.data.sample_size % smallest:
            raise InputError(
                f"data.sample_size ({self.data.sample_size}) must be a multiple of {smallest}, because each of the "
                f"{self.model.conv_layers} blocks halves it; change it or model.conv_layers"
            )
        if self.simulate.universe_size % self.data.sample_size:
            raise InputError(
                f"simulate.universe_size ({self.simulate.universe_size}) must be a multiple of data.sample_size "
                f"({self.data.sample_size}), so that a universe is cut into whole samples"
            )
        if len(self.simulate.redshifts) != self.data.channels:
            raise InputError(
                f"simulate.redshifts has {counted(len(self.simulate.redshifts), 'value')} but data.channels is "
                f"{self.data.channels}; give one redshift per channel"
            )
        given = len(self.data.input_mean), len(self.data.input_std)
        if given not in ((0, 0), (self.data.channels, self.data.channels)):
            raise InputError(
                f"data.input_mean and data.input_std have {given[0]} and {counted(given[1], 'value')} but "
                f"data.channels is {self.data.channels}; give one of both per channel, or none"
            )
        if round(self.simulate.particles_per_cell ** (1 / 3)) ** 3 != self.simulate.particles_per_cell:
            raise InputError(
                f"simulate.particles_per_cell ({self.simulate.particles_per_cell}) must be a cube number, because the "
                f"particles start on a grid; take 1, 8 or 27"
            )
