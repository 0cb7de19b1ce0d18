"""CosmoFlow's training task: four parameters from particle counts, squared error as loss, absolute error as metric."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from apps.cosmoflow.config import PARAMETERS, Config
from hpcbench.optim.schedule import warmup_in_epochs
from hpcbench.train.randomness import uniform
from hpcbench.train.task import Task

SYMMETRIES = tuple(product(permutations((0, 1, 2)), product((False, True), repeat=3)))
"""The 48 symmetries of the cube: an order of the three axes, and for each axis whether it is reversed."""
AUGMENTATION_STREAM = 0
"""Stream of a sample's random numbers; the model's dropout layers use 1 and 2."""


class CosmoFlowTask(Task):
    """Loss, scores and logged settings as in the MLPerf HPC reference (mlcommons/hpc)."""

    metric = "mae"
    metric_key = "eval_error"
    better = "lower"
    columns = tuple(f"{kind}_{name}" for kind in ("error", "predicted", "true") for name in PARAMETERS)

    def __init__(self, config: Config) -> None:
        self.config = config
        self.mean, self.std = (
            torch.tensor(values).reshape(-1, 1, 1, 1) for values in (config.data.input_mean, config.data.input_std)
        )

    def reads_parts(self, training: bool) -> bool:
        """True unless samples are transformed as a whole, or divided by their means."""
        return self.config.data.apply_log and not (training and self.config.data.augment)

    def prepare(self, inputs: Tensor, targets: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convert counts (batch, channels, d, h, w) to float32 ln(1 + count), or count over the sample's mean.

        With ``data.input_mean`` and ``data.input_std`` each channel is standardized by them. Strides are kept. With
        ``data.augment`` and ``keys``, each sample is transformed by its own symmetry of the cube.
        """
        if self.config.data.augment and keys is not None:
            inputs = augmented(inputs, keys)
        # A copy even if the input is already float32, since the next operation works in place.
        values = inputs.to(torch.float32, copy=True)
        if self.config.data.apply_log:
            values.log1p_()
        else:
            values.div_(values.mean(dim=(1, 2, 3, 4), keepdim=True))
        if len(self.mean):
            # Moved at the first batch only, so later ones copy nothing to the device.
            self.mean, self.std = self.mean.to(values.device), self.std.to(values.device)
            values.sub_(self.mean).div_(self.std)
        return values, targets.to(torch.float32)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean squared error over parameters and batch."""
        return functional.mse_loss(output, target.to(output.dtype))

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """Absolute error, prediction and truth of each parameter: (batch, 12) float64."""
        predicted, true = output.double(), target.double()
        return torch.cat(((predicted - true).abs(), predicted, true), dim=1)

    def metrics(self, scores: Tensor) -> dict[str, float]:
        """``mae``, the mean absolute error over samples and parameters, and ``mae_<parameter>``."""
        errors = scores[:, : len(PARAMETERS)].double().mean(dim=0)
        return {"mae": float(errors.mean())} | {
            f"mae_{name}": float(error) for name, error in zip(PARAMETERS, errors, strict=True)
        }

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The kernels of the two hidden dense layers with the published L2 loss, the rest without.

        The loss term ``l2 * sum(w**2)`` has the gradient ``2 * l2 * w``, which is a weight decay of ``2 * l2``.
        """
        parameters = dict(model.named_parameters())
        decayed = [parameters.pop(name) for name in ("dense1.weight", "dense2.weight")]
        return [
            {"params": decayed, "weight_decay": 2 * self.config.optim.weight_decay},
            {"params": list(parameters.values()), "weight_decay": 0.0},
        ]

    def log_keys(self, steps_per_epoch: int) -> dict[str, Any]:
        """Keys of a closed CosmoFlow log. The base learning rate is the peak; epochs are those of the schedule.

        The warm-up factor is peak over start; it is 1 without a warm-up, and 0 for a warm-up from 0. A schedule without
        drops, which the closed division does not know, is named by a key of our own.
        """
        optim, schedule = self.config.optim, self.config.schedule
        warmup = schedule.warmup if warmup_in_epochs(schedule) else schedule.warmup / steps_per_epoch
        dropping = schedule.shape == "multistep"
        drops = list(schedule.milestones) if dropping else []
        if schedule.unit == "step":
            drops = [round(milestone / steps_per_epoch + warmup) for milestone in drops]
        start = schedule.warmup_start_lr
        factor = 1.0 if not schedule.warmup else optim.lr / start if start > 0 else 0.0
        keys = {
            "opt_name": optim.name,
            "opt_base_learning_rate": optim.lr,
            "opt_learning_rate_warmup_epochs": warmup,
            "opt_learning_rate_warmup_factor": factor,
            "opt_learning_rate_decay_boundary_epochs": drops,
            "opt_learning_rate_decay_factor": list(schedule.factors) if dropping else [],
            "dropout": self.config.model.dropout,
            "opt_weight_decay": optim.weight_decay,
        }
        return keys if schedule.shape in ("constant", "multistep") else keys | {"scheduler_type": schedule.shape}

    def example(self, inputs: Tensor, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Central slice of every channel as the network sees it, (batch, channels, h, w) float32."""
        return {"slice": inputs[:, :, inputs.shape[2] // 2].float()}


def augmented(inputs: Tensor, keys: Tensor) -> Tensor:
    """Return samples (batch, channels, n, n, n), each transformed by the symmetry of the cube that its key selects.

    ``keys`` is (batch,) int64 on the CPU. Memory format and dtype are unchanged.
    """
    result = torch.empty_like(inputs)
    choices = (uniform(keys.cpu(), AUGMENTATION_STREAM, 1)[:, 0] * len(SYMMETRIES)).long().tolist()
    for sample, turned, choice in zip(inputs, result, choices, strict=True):
        order, reversals = SYMMETRIES[choice]
        reversed_axes = [axis + 1 for axis in range(3) if reversals[axis]]
        turned.copy_(sample.permute(0, *(axis + 1 for axis in order)).flip(reversed_axes))
    return result


def build_task(config: Config) -> CosmoFlowTask:
    """The task that ``config`` describes."""
    return CosmoFlowTask(config)
