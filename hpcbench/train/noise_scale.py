"""The gradient noise scale B_simple = tr(Sigma) / |G|^2, measured while a run trains.

Sigma is the covariance of the gradient of one sample and G the gradient of the whole training set. McCandlish et al.,
"An Empirical Model of Large-Batch Training" (2018), expect the critical batch size near B_simple, and give unbiased
estimators of both parts from squared norms of gradients of a small batch and of a big one (appendix A.1). Here the
small batches are the parts of an optimizer step, those of each rank (of each group of ranks that share samples) and
micro-batch, and the big one is the step:

  A = sum_i (b_i / B) |G_i|^2   has the mean  |G|^2 + m tr(Sigma) / B   for m parts of b_i samples, B in all
  |G_B|^2                       has the mean  |G|^2 +   tr(Sigma) / B

so that tr(Sigma) = (A - |G_B|^2) B / (m - 1) and |G|^2 = (m |G_B|^2 - A) / (m - 1), whatever the sizes of the parts.
Both are noisy, |G|^2 may be negative, and a ratio of noisy numbers is biased, so they are summed over measurements
before their ratio is taken, with an interval (``measure/ratio_of_sums.py``). The curve of a run takes exponential
averages instead of sums, so that it follows the training. Dropout counts as noise of the samples. Batch-norm statistics
belong to a part, except where processes share them (train.batchnorm_group_size): then the parts are not independent,
and the estimate is rough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from hpcbench.config.schema import RunConfig
from hpcbench.measure.ratio_of_sums import RatioOfSums, ratio_of_sums
from hpcbench.parallel.exposed import UNRECORDED, Recorder, recorded
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.peers import Peers
from hpcbench.train.measurement import Measurement, ObserverInputs
from hpcbench.train.observers import Row, StepInfo, StepObserver
from staging.errors import InputError

COLUMNS = ("epoch", "step", "samples", "small_batch", "big_batch", "gradient_sq", "tr_sigma", "b_simple")
"""Columns of ``noise_scale.csv``: |G|^2 and tr(Sigma) of one step, and B_simple of their exponential averages up to
it, which is empty where it is not resolved."""

AVERAGED = 20
"""Measurements that the exponential average covers."""


def check_noise_scale(config: RunConfig, parts: int) -> None:
    """Raise ``InputError`` for sharded gradients, and for steps that have one of ``parts`` over all ranks."""
    every = f"train.noise_scale_every ({config.train.noise_scale_every})"
    if config.parallel.shard_states:
        raise InputError(f"{every} needs whole parameters; set it 0, or parallel.shard_states false")
    if parts < 2:
        raise InputError(
            f"{every} compares parts of a step, and a step has one; train on several ranks, raise train.accumulation "
            "or parallel.simulated_ranks, or set train.noise_scale_every 0"
        )


def estimate(parts: float, big_batch: int, small_sq: float, big_sq: float) -> tuple[float, float]:
    """|G|^2 and tr(Sigma) of one step, unbiased, from A and |G_B|^2 (see above)."""
    return (parts * big_sq - small_sq) / (parts - 1), (small_sq - big_sq) * big_batch / (parts - 1)


class Measurements:
    """|G|^2 and tr(Sigma) of all measurements, and their exponential averages up to the last."""

    def __init__(self) -> None:
        self.gradient_sq: list[float] = []
        self.tr_sigma: list[float] = []
        self.average_gradient_sq = self.average_tr_sigma = 0.0

    def add(self, gradient_sq: float, tr_sigma: float) -> float:
        """Add a measurement; returns B_simple of the averages up to it, in samples; infinite if noise hides |G|^2."""
        self.gradient_sq.append(gradient_sq)
        self.tr_sigma.append(tr_sigma)
        # Both start at zero, which cancels in the ratio.
        self.average_gradient_sq += (gradient_sq - self.average_gradient_sq) / AVERAGED
        self.average_tr_sigma += (tr_sigma - self.average_tr_sigma) / AVERAGED
        resolved = self.average_gradient_sq > 0
        return max(0.0, self.average_tr_sigma / self.average_gradient_sq) if resolved else math.inf

    def ratio(self) -> RatioOfSums | None:
        """B_simple in samples over all measurements; ``None`` before the first."""
        return ratio_of_sums(self.tr_sigma, self.gradient_sq)


class NoiseScale(StepObserver):
    """Measures every ``every`` optimizer steps. Norms stay on the device until ``flush``.

    A measured step copies the gradients once per part after its first, since gradients accumulate, and sums those of
    each part over the ranks of ``mesh`` that share its samples. ``scaler`` is the gradient scaler of mixed precision,
    whose factor is removed. ``recorder`` records the messages sent for it.
    """

    name = "noise_scale"
    table = "noise_scale.csv"

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        group: Group,
        every: int,
        scaler: Any = None,
        mesh: Mesh | None = None,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.group = group
        self.channel = recorder.channel("noise_scale", group.latest, on_host=True)
        axes = mesh.axes.values() if mesh is not None else ()
        self.axes = [recorded(axis, recorder, "noise_scale") for axis in axes]
        self.counts = mesh is None or mesh.spatial_rank == 0
        """Whether this rank counts its parts, not another rank that has the same parts."""
        self.every = every
        self.scaler = scaler
        self.measurements = Measurements()
        self.pending: list[tuple[StepInfo, Tensor]] = []
        self.before: list[Tensor] | None = None
        self.small: list[Tensor] = []
        self.begun = False
        """Whether the gradients already contain those of an earlier part of the step."""

    def due(self, step: int) -> bool:
        """Whether an optimizer step, counted from 1, is measured."""
        return step % self.every == 0

    def before_backward(self, step: int) -> None:
        """Keep the gradients of earlier parts, before the backward pass of another."""
        if self.due(step) and self.begun:
            # Gradients accumulate, so those of a part are a difference.
            self.before = [
                torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                for parameter in self.parameters
            ]

    def after_backward(self, step: int, share: float) -> None:
        """Take the norm of a part, whose mean loss had the weight ``share`` = b_i / B, before gradients are summed.

        A part without samples does not count.
        """
        before, self.before = self.before, None
        if not self.due(step) or not share:
            return
        self.begun = True
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if before is not None:
            for earlier, parameter in zip(before, self.parameters, strict=True):
                if parameter.grad is not None:
                    earlier.sub_(parameter.grad)
            gradients = before
        if self.axes:
            gradients = [_summed(gradients, self.axes)]
        if self.counts:
            self.small.append(_square(gradients) / share)

    def before_update(self, info: StepInfo) -> None:
        """Take the norm of the whole step, after gradients are summed over ranks."""
        if not self.due(info.number):
            return
        big = _square([parameter.grad for parameter in self.parameters if parameter.grad is not None])
        parts = big.new_full((), len(self.small))
        small = torch.stack(self.small).sum() if self.small else torch.zeros_like(big)
        scale = self._scale(big)
        self.pending.append((info, torch.stack([parts, small / scale, big / scale])))
        self.small, self.begun = [], False

    def flush(self, epoch: int) -> list[Row]:
        """Rows of ``noise_scale.csv``, the same on all ranks; waits for the device.

        A step with a single part (the last of an epoch may be one) or that overflowed half precision has no row.
        """
        if not self.pending:
            return []
        parts_and_squares = torch.stack([values for _, values in self.pending])
        mine = parts_and_squares[:, :2].contiguous()
        with self.channel.message() if self.group.world_size > 1 else nullcontext():
            sums = self.group.all_reduce_sum(mine).tolist()
        bigs = parts_and_squares[:, 2].tolist()
        rows: list[Row] = []
        for (info, _), (parts, small), big in zip(self.pending, sums, bigs, strict=True):
            if parts >= 2 and math.isfinite(small) and math.isfinite(big):
                gradient_sq, tr_sigma = estimate(parts, info.step_samples, small, big)
                b_simple = self.measurements.add(gradient_sq, tr_sigma)
                shown = b_simple if math.isfinite(b_simple) else ""
                values = (
                    epoch, info.number, info.samples, info.step_samples / parts, info.step_samples, gradient_sq,
                    tr_sigma, shown,
                )  # fmt: skip
                rows.append(dict(zip(COLUMNS, values, strict=True)))
        self.pending.clear()
        return rows

    def state_dict(self) -> dict[str, Any]:
        """All measurements, and their averages."""
        state = vars(self.measurements)
        return state | {name: list(value) for name, value in state.items() if isinstance(value, list)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the measurements of a resumed run."""
        vars(self.measurements).update(state)

    def summary(self) -> dict[str, Any]:
        """The noise scale of the run with its interval."""
        ratio = self.measurements.ratio()
        if ratio is None:
            return {}
        return {"noise_scale": ratio.value, "noise_scale_low": ratio.low, "noise_scale_high": ratio.high}

    def _scale(self, like: Tensor) -> Tensor:
        """The square of the scaler's factor, without waiting for the device."""
        one = torch.ones((), device=like.device)
        factor: Tensor = one if self.scaler is None else self.scaler.scale(one)
        return factor.to(like.dtype).square()


def _summed(gradients: list[Tensor], axes: Sequence[Peers]) -> Tensor:
    """All gradients, one after the other, summed over the ranks of ``axes``."""
    together = torch.cat([gradient.reshape(-1) for gradient in gradients])
    for axis in axes:
        axis.all_reduce(together)
    return together


def _square(gradients: list[Tensor]) -> Tensor:
    """The squared norm of all gradients together, in float64."""
    return get_total_norm(gradients).to(torch.float64).square()


def of_run(parts: ObserverInputs) -> NoiseScale:
    """The observer of a run, over all parameters."""
    run, parameters = parts.run, parts.step.model.parameters()
    every = run.config.train.noise_scale_every
    return NoiseScale(parameters, run.group, every, run.precision.scaler, run.mesh, run.communication)


MEASUREMENT = Measurement(NoiseScale, lambda config: config.train.noise_scale_every, of_run, check=check_noise_scale)
