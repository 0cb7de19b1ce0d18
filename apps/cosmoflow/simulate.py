"""Simulated universes in the published forms: initial conditions, Lagrangian perturbation theory, particle counts.

Every particle starts at a random place in its own Lagrangian cell, whose center is a corner of the counting grid, and
moves with that cell. Counts then scatter on the scale of a cell nearly as in a Poisson process, while large scales stay
free of shot noise. A bare lattice would leave high redshifts regular, and files smaller than real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from apps.cosmoflow import samples
from apps.cosmoflow.config import PARAMETERS, Config, CosmoFlowSimulate
from apps.cosmoflow.cosmology import Cosmology
from apps.cosmoflow.fields import count_particles, displacements, linear_field
from apps.cosmoflow.samples import LABEL_SUFFIX, Counts, Label, files_of_sample
from apps.cosmoflow.universe import counts_files, sub_volume
from staging.errors import InputError

SPLITS = ("train", "validation", "test")
"""Folders of a dataset; the position of a split is part of the key of its random numbers."""

Device = torch.device | str | None


@dataclass(frozen=True)
class Universe:
    """Counts (N, N, N, C) int16 of one simulated universe, a channel per redshift, and its label (4,) float32."""

    counts: Counts
    label: Label


class Randomness:
    """Counter-based (Philox) random numbers that depend only on (seed, split, index) and on the stream.

    On the CPU they are NumPy's; an accelerator draws its own, so it agrees with the CPU in distribution only.
    """

    def __init__(self, seed: int, split: str, index: int, device: Device = None) -> None:
        self.key = [seed % 2**64, (SPLITS.index(split) << 48) + index]
        self.device = torch.get_default_device() if device is None else torch.device(device)

    def label(self) -> Label:
        """Scaled parameters, (4,), uniform in [-1, 1)."""
        return self._host(0).uniform(-1, 1, len(PARAMETERS)).astype(np.float32)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32 numbers."""
        if self.device.type == "cpu":
            return torch.from_numpy(self._host(1).standard_normal(shape, dtype=np.float32))
        return torch.randn(shape, generator=self._on_device(1), device=self.device)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform float32 numbers in [0, 1)."""
        if self.device.type == "cpu":
            return torch.from_numpy(self._host(2).random(shape, dtype=np.float32))
        return torch.rand(shape, generator=self._on_device(2), device=self.device)

    def _host(self, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.key, counter=[0, 0, 0, stream]))

    def _on_device(self, stream: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(int(self._host(stream).integers(2**63)))


def simulate_universe(config: Config, split: str, index: int, device: Device = None) -> Universe:
    """Simulate universe number ``index`` of ``split``, on torch's default device unless ``device`` is given.

    On one thread the bytes are the same on one device type, whichever process computes them and in whatever order.
    """
    random = Randomness(config.simulate.seed, split, index, device)
    label = random.label()
    return Universe(evolve(Cosmology.from_label(label), config.simulate, random).cpu().numpy(), label)


def evolve(cosmology: Cosmology, simulate: CosmoFlowSimulate, random: Randomness) -> Tensor:
    """Return counts (N, N, N, C) int16 at each redshift, all evolved from one initial field.

    Raises ``InputError`` if a cell holds more particles than int16 can count.
    """
    size, per_edge = simulate.universe_size, round(simulate.particles_per_cell ** (1 / 3))
    edge = size * per_edge
    modes = linear_field(random.normal(edge, edge, edge), cosmology, simulate.cell_mpc_h / per_edge)
    first, second = displacements(modes, edge)
    start = random.uniform(3, edge, edge, edge).sub_(0.5)
    for axis in range(3):
        start[axis] += torch.arange(edge, device=start.device).view([-1 if dim == axis else 1 for dim in range(3)])
    counts = torch.empty(size, size, size, len(simulate.redshifts), dtype=torch.int16, device=start.device)
    for channel, redshift in enumerate(simulate.redshifts):
        d1, d2 = cosmology.growth_first(redshift), cosmology.growth_second(redshift)
        paths = zip(start, first, second, strict=True)
        moved = (torch.add(q, psi, alpha=d1).add_(chi, alpha=d2).div_(per_edge) for q, psi, chi in paths)
        snapshot = count_particles(moved, size)
        if (most := int(snapshot.max())) > torch.iinfo(torch.int16).max:
            raise InputError(
                f"a cell holds {most} particles, more than int16 can count (32767); "
                f"lower simulate.particles_per_cell ({simulate.particles_per_cell})"
            )
        counts[..., channel] = snapshot
    return counts


def samples_per_call(config: Config) -> int:
    """Number of sub-volumes in a universe."""
    return (config.simulate.universe_size // config.data.sample_size) ** 3


def expected_files(config: Config, root: Path, split: str, index: int) -> list[Path]:
    """Every file that ``write_sample`` writes for universe ``index`` of ``split``."""
    files = counts_files(root / split, f"{config.simulate.seed:08d}", f"univ_{split}_a{index:08d}", config)
    return [path for counts_file in files for path in files_of_sample(counts_file, config.data.format)]


def write_sample(config: Config, root: Path, split: str, index: int) -> list[Path]:
    """Simulate universe ``index`` of ``split``, write its sub-volumes below ``root / split`` and return their files."""
    files = expected_files(config, root, split, index)
    (root / split).mkdir(parents=True, exist_ok=True)
    universe = simulate_universe(config, split, index)
    counts_only = [path for path in files if not path.name.endswith(LABEL_SUFFIX)]
    for number, path in enumerate(counts_only):
        part = universe.counts[sub_volume(number, config.simulate.universe_size, config.data.sample_size)]
        samples.write_sample(path, part, universe.label, config.data)
    return files


def finish(config: Config, root: Path) -> None:
    """Do nothing: once every sample is written, the dataset is complete."""
