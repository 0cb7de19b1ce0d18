"""Draws the pictures of simulated universes: ``python docs/pictures/make_cosmoflow.py`` (a minute on one core)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from apps.cosmoflow.config import Config
from apps.cosmoflow.cosmology import PLANCK_2015, Cosmology
from apps.cosmoflow.fields import linear_field, power_spectra
from apps.cosmoflow.simulate import Randomness, evolve

HERE = Path(__file__).parent
PLANCK = Cosmology(*PLANCK_2015)
INK, MUTED = "#1b2733", "#5d6b7a"
COLORS = ("#D55E00", "#0072B2", "#009E73")
CELLS, CELL, SLAB = 128, 2.0, 6
"""Cells along an edge, their size in Mpc/h, and the thickness of the pictured slab in cells."""


def universe() -> Figure:
    """A slab of one universe at the four redshifts, on one logarithmic scale of density."""
    config = Config()
    simulate = config.simulate
    simulate.universe_size, simulate.cell_mpc_h, simulate.particles_per_cell = CELLS, CELL, 8
    counts = evolve(PLANCK, simulate, Randomness(2019, "train", 0))
    density = counts[:, :, :SLAB].float().mean(dim=2) / simulate.particles_per_cell
    figure = Figure(figsize=(12, 3.5), dpi=160)
    grid = figure.add_gridspec(1, 5, width_ratios=(1, 1, 1, 1, 0.045), wspace=0.06, left=0.02, right=0.935)
    edge = CELLS * CELL
    for channel, redshift in enumerate(simulate.redshifts):
        axes = figure.add_subplot(grid[channel])
        image = axes.imshow(
            density[..., channel].clamp(min=0.03).T.numpy(),
            norm=LogNorm(0.1, 12),
            cmap="magma",
            origin="lower",
            extent=(0, edge, 0, edge),
            interpolation="bicubic",
        )
        axes.set_title(f"channel {channel}:  z = {redshift:g}", fontsize=11, color=INK, loc="left")
        axes.set_axis_off()
        if channel == 0:
            axes.plot([12, 62], [12, 12], color="white", linewidth=2.5, solid_capstyle="butt")
            axes.text(37, 17, "50 Mpc/h", color="white", ha="center", fontsize=9)
    bar = figure.colorbar(image, cax=figure.add_subplot(grid[4]), extend="both")
    bar.set_ticks([0.1, 0.3, 1, 3, 10], labels=["0.1", "0.3", "1", "3", "10"])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("density / mean", color=MUTED)
    figure.text(
        0.02,
        0.03,
        f"One simulated universe (Planck 2015), {CELLS}³ cells of {CELL:g} Mpc/h, 8 particles per cell; "
        f"the mean of a slab {SLAB * CELL:g} Mpc/h thick.",
        fontsize=9,
        color=MUTED,
    )
    return figure


def spectrum() -> Figure:
    """Power of linear fields beside the spectrum that they were drawn from, for three universes."""
    figure = Figure(figsize=(7.2, 5.2), dpi=160)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.1))
    universes = {
        "Ω$_m$ 0.22, σ$_8$ 0.9, n$_s$ 0.9, H$_0$ 60": Cosmology(0.22, 0.9, 0.9, 60.0),
        "Planck 2015": PLANCK,
        "Ω$_m$ 0.40, σ$_8$ 0.6, n$_s$ 1.2, H$_0$ 75": Cosmology(0.40, 0.6, 1.2, 75.0),
    }
    cell, fields = 8.0, 8
    waves = torch.from_numpy(wave_lengths(cell))
    for seed, (color, (name, cosmology)) in enumerate(zip(COLORS, universes.items(), strict=True)):
        powers = []
        for index in range(fields):
            modes = linear_field(Randomness(seed, "train", index).normal(CELLS, CELLS, CELLS), cosmology, cell)
            power, number = power_spectra(torch.fft.irfftn(modes, s=(CELLS,) * 3)[None])
            powers.append(power[0].numpy() * cell**3)
        k = shell_mean(waves)
        measured, error = np.mean(powers, axis=0), np.sqrt(2 / (number.numpy() * fields))
        fine = np.geomspace(k[0] * 0.8, k[-1] * 1.1, 600)
        upper.plot(fine, cosmology.power(fine), color=color, linewidth=1.4)
        upper.errorbar(k, measured, measured * error, fmt=".", markersize=5, color=color, label=name, linewidth=1)
        lower.errorbar(
            k,
            measured / shell_mean(torch.from_numpy(cosmology.power(waves.numpy()))),
            error,
            fmt=".",
            markersize=4,
            color=color,
            linewidth=1,
        )
    upper.set(xscale="log", yscale="log", ylabel="P(k)  [(Mpc/h)³], log scale")
    upper.legend(frameon=False, fontsize=9)
    upper.set_title(f"Linear fields and the spectrum they were drawn from (mean of {fields})", loc="left", fontsize=11)
    lower.axhline(1, color=MUTED, linewidth=1)
    lower.set(xlabel="k  [h/Mpc], log scale", ylabel="measured / input", ylim=(0.75, 1.25))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e4e8ed", linewidth=0.7)
    figure.align_ylabels()
    figure.tight_layout()
    return figure


def wave_lengths(cell: float) -> np.ndarray:
    """|k| in h/Mpc of the modes of ``rfftn``."""
    full, half = np.fft.fftfreq(CELLS, cell), np.fft.rfftfreq(CELLS, cell)
    return 2 * np.pi * np.sqrt(full[:, None, None] ** 2 + full[None, :, None] ** 2 + half**2)


def shell_mean(values: torch.Tensor) -> np.ndarray:
    """Average of a function of the modes over each shell, as a measurement averages it."""
    field = torch.fft.irfftn((values * CELLS**3).sqrt() + 0j, s=(CELLS,) * 3)
    return power_spectra(field[None])[0][0].numpy()


if __name__ == "__main__":
    universe().savefig(HERE / "cosmoflow-universe.png", facecolor="white")
    spectrum().savefig(HERE / "cosmoflow-spectrum.png", facecolor="white")
