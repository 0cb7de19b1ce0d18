"""The files of a run folder as the checks of its page read them, and what a run was asked to be."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from scipy import optimize, stats

from hpcbench.results import units

from .page_applications import PAGES

Claims = dict[str, str]
"""Texts of a page by their keys, as they must be."""


class Tables:
    """The files of a run folder, and figures that follow from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = yaml.safe_load((folder / "config.yaml").read_text())
        self.steps, self.epochs, self.ranks = (self.table(name) for name in ("steps", "epochs", "ranks"))
        self.attempts: list[dict[str, Any]] = json.loads((folder / "attempts.json").read_text())["attempts"]
        self.page = PAGES[json.loads((folder / "summary.json").read_text())["application"]]
        self.environment = json.loads((folder / "environment.json").read_text())
        self.system = json.loads((folder / "system.json").read_text())
        lines = (folder / "mllog.txt").read_text().splitlines()
        self.events = [json.loads(line.split(":::MLLOG ")[1]) for line in lines if ":::MLLOG" in line]
        self.world = int(self.environment["ranks"])
        self.summed = self.world > 1 and not self.ranks.empty
        """Whether phases are those of all ranks."""

    def table(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.csv"
        return pd.read_csv(path) if path.exists() else pd.DataFrame()

    def logged(self, key: str) -> Any:
        return next(event for event in self.events if event["key"] == key)

    @property
    def aborted(self) -> bool:
        return self.attempts[-1]["cause"] in ("signal", "diverged")

    @property
    def reached(self) -> bool:
        return self.attempts[-1]["cause"] == "target"

    @property
    def target(self) -> float:
        return float(self.config["train"]["target"])

    @property
    def trained_epochs(self) -> str:
        """Up to the last evaluation: a fraction where that was within an epoch."""
        return f"{self.epochs['epoch'].iloc[-1]:g}"

    @property
    def quality(self) -> float:
        """Of a run that reached its target the last score, of others the best."""
        scores = self.epochs[self.page.metric]
        return float(scores.iloc[-1]) if self.reached else self.page.best(scores)

    @property
    def clock_s(self) -> float:
        return float(self.logged("run_stop")["time_ms"] - self.logged("run_start")["time_ms"]) / 1e3

    @property
    def clock(self) -> str:
        return units.duration(self.clock_s)

    @property
    def wall_s(self) -> float:
        return sum(each["wall_s"] for each in self.attempts)

    @property
    def gaps(self) -> list[float]:
        return [after["started"] - before["ended"] for before, after in pairwise(self.attempts)]

    @property
    def last_step(self) -> int:
        return int(self.attempts[-1]["last_step"])

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the parameters, from a checkpoint; what batch norm counts is none."""
        path = sorted((self.folder / "checkpoints").glob("*.pt"))[-1]
        state = torch.load(path, weights_only=True)["model"]
        counted = ("running_mean", "running_var", "num_batches_tracked")
        return [tuple(tensor.shape) for name, tensor in state.items() if not name.endswith(counted)]

    def flops(self, of: str) -> float:
        """Operations of a sample, by hand: two for each product, forward or ``training`` (forward and backward)."""
        forward, first = self.page.forward_flops(self.shapes)
        return forward if of == "forward" else 3 * forward - first  # no gradient of the input is needed

    @property
    def samples_per_s(self) -> float | None:
        """The median over epochs after the first."""
        samples = [0, *self.epochs.get("samples", [])]
        rates = (
            [(now - before) / s for (before, now), s in zip(pairwise(samples), self.epochs["train_s"], strict=True)]
            if not self.epochs.empty
            else []
        )
        return median(rates[1:]) if len(rates) > 1 else None

    @property
    def warm_rate(self) -> float | None:
        if self.ranks.empty or not self.ranks["steps"].all():
            return None
        return float(self.ranks["samples"].iloc[0] / self.ranks["wall_s"].max())

    @property
    def batch(self) -> tuple[int, str]:
        """The global batch, and how it comes about."""
        local, simulated = self.config["train"]["local_batch_size"], self.config["parallel"]["simulated_ranks"]
        if self.config["parallel"]["spatial"] != "1":
            groups = self.world // 2
            return local * groups, f"{groups} group{'s' if groups > 1 else ''} of 2 ranks x {local}"
        if (accumulation := self.config["train"]["accumulation"]) > 1:
            return local * accumulation, f"1 rank x {local} x {accumulation} accumulated"
        if simulated:
            return local * simulated, f"1 rank simulating {simulated} x {local}"
        return local * self.world, f"{self.world} rank{'s' if self.world > 1 else ''} x {local}"

    @property
    def noise_scale(self) -> str | None:
        """The sum of tr(Sigma) over that of |G|^2, over all measurements, with the ratios that the blocks allow.

        The ends are found by their condition, not by Fieller's formula.
        """
        table = self.table("noise_scale")
        if table.empty:
            return None
        value = float(table["tr_sigma"].sum() / table["gradient_sq"].sum())
        assert value > 0
        pairs = table[["tr_sigma", "gradient_sq"]].to_numpy()
        blocks = np.array([part.sum(0) for part in np.array_split(pairs, min(20, len(pairs)))])
        bound = stats.t.ppf(0.975, len(blocks) - 1) / math.sqrt(len(blocks))

        def beyond(ratio: float) -> float:
            off = blocks[:, 0] - ratio * blocks[:, 1]
            return float(abs(off.mean()) - bound * off.std(ddof=1))

        low, high = value / 1e6, value * 1e6
        ends = (
            optimize.brentq(beyond, low, value) if beyond(low) > 0 else 0.0,
            optimize.brentq(beyond, value, high) if beyond(high) > 0 else math.inf,
        )
        return f"{units.interval(value, ends)} samples"

    def checkpoint(self, name: str) -> float:
        return float(sum(each["checkpoint"][f"checkpoint_{name}"] for each in self.attempts))
