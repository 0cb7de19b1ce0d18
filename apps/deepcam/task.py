"""DeepCAM's training task: a class per pixel, weighted cross-entropy, target on the intersection over union."""

from __future__ import annotations

from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from apps.deepcam.config import CHANNELS, CLASSES, Config
from apps.deepcam.iou import confusion_counts, metrics_from_counts
from apps.deepcam.statistics import load_statistics
from hpcbench.config.optimizers import optimizer_info, options_of
from hpcbench.config.schema import RunConfig
from hpcbench.config.validate import DESCENTS
from hpcbench.optim.schedule import warmup_steps
from hpcbench.train.task import Task

CLASS_FREQUENCIES = (0.986267818390377, 0.0004578708870701058, 0.01327431072255291)
"""Share of each class among the pixels of the published training set."""
CLASS_WEIGHTS = tuple(frequency**-0.125 for frequency in CLASS_FREQUENCIES)
"""Weights of the classes in the loss: 1.0017, 2.6146 and 1.7164."""
LAMB_KEYS = ("bias_correction", "grad_averaging", "max_grad_norm")
"""Optimizer options that a LAMB log records."""
PICTURE_WIDTH = 384
"""Examples for the report are thinned to at most this many columns."""


class DeepCAMTask(Task):
    """Loss, scores and logged settings as in the MLPerf HPC reference (mlcommons/hpc)."""

    metric = "iou"
    metric_key = "eval_accuracy"
    better = "higher"
    columns = tuple(f"{count}_{name}" for name in CLASSES for count in ("tp", "fp", "fn"))

    def __init__(self, config: Config) -> None:
        self.config = config
        self.weights = torch.tensor(CLASS_WEIGHTS)
        self.minimum: Tensor | None = None
        self.extent: Tensor | None = None

    def load(self, config: RunConfig) -> None:
        """Read the minimum and maximum of each variable from ``stats.h5`` of the dataset."""
        statistics = load_statistics(config.data.root)
        self.set_range(torch.as_tensor(statistics.minimum), torch.as_tensor(statistics.maximum))

    def set_range(self, minimum: Tensor, maximum: Tensor) -> None:
        """Set the float32 ranges (16,) to normalize by, in the order of the published variables."""
        chosen = self.config.data.channels
        self.minimum = minimum[chosen].reshape(-1, 1, 1)
        self.extent = (maximum - minimum)[chosen].reshape(-1, 1, 1)

    def reads_parts(self, training: bool) -> bool:
        """Always true: the fields are normalized element by element."""
        return True

    def prepare(self, inputs: Tensor, targets: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scale fields (batch, channels, h, w) to [0, 1] by the training set's range; labels to int64; keep strides."""
        assert self.minimum is not None, "load() comes before prepare()"
        assert self.extent is not None
        # Moved at the first batch only, so later ones copy nothing to the device.
        self.minimum, self.extent = self.minimum.to(inputs.device), self.extent.to(inputs.device)
        return torch.sub(inputs, self.minimum).div_(self.extent), targets.long()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean over all pixels of the weighted cross-entropy; it is not divided by the sum of weights."""
        if (self.weights.dtype, self.weights.device) != (output.dtype, output.device):
            self.weights = output.new_tensor(CLASS_WEIGHTS)
        return functional.cross_entropy(output, target, self.weights, reduction="none").mean()

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """True positives, false positives and false negatives of each class: (batch, 9) float64."""
        return confusion_counts(output.argmax(dim=1), target).flatten(1)

    def metrics(self, scores: Tensor) -> dict[str, float]:
        """The published ``iou``, ``iou_<class>``, ``iou_present_<class>`` and ``share_<class>``."""
        return metrics_from_counts(scores.reshape(-1, len(CLASSES), 3))

    def log_keys(self, steps_per_epoch: int) -> dict[str, Any]:
        """Keys of a closed DeepCAM log, with the schedule in optimizer steps.

        As in the reference, ``opt_lr`` times the warm-up factor is the peak, and a factor of 1 warms up from 0.
        """
        optim, schedule, options = self.config.optim, self.config.schedule, options_of(self.config.optim)
        per_unit = steps_per_epoch if schedule.unit == "epoch" else 1
        warmup = warmup_steps(schedule, steps_per_epoch)
        factor = optim.lr / schedule.warmup_start_lr if schedule.warmup and schedule.warmup_start_lr > 0 else 1.0
        keys: dict[str, Any] = {
            "gradient_accumulation_frequency": self.config.train.accumulation,
            "batchnorm_group_size": self.config.train.batchnorm_group_size,
            "opt_name": optimizer_info(optim.name).official,
            "opt_lr": optim.lr / factor,
            "opt_betas": list(options.get("betas", ())),
            "opt_eps": options.get("eps", 0.0),
            "opt_weight_decay": optim.weight_decay,
            **{f"opt_{name}": options[name] for name in LAMB_KEYS if name in options and "bias_correction" in options},
            "scheduler_lr_warmup_steps": warmup,
            "scheduler_lr_warmup_factor": factor,
        }
        if schedule.shape in DESCENTS:
            keys |= {"scheduler_t_max": schedule.t_max * per_unit, "scheduler_eta_min": schedule.eta_min}
            if schedule.shape == "cosine":
                return keys | {"scheduler_type": "cosine_annealing"}
            # The closed division has no others, so its checker rejects their names.
            power = {"scheduler_power": schedule.power} if schedule.shape == "polynomial" else {}
            return keys | {"scheduler_type": schedule.shape, **power}
        dropping = schedule.shape == "multistep"
        # Milestones in epochs count from the start, those in steps from the end of the warm-up, as logged.
        shift = warmup if schedule.unit == "epoch" else 0
        return keys | {
            "scheduler_type": "multistep",
            "scheduler_milestones": [milestone * per_unit - shift for milestone in schedule.milestones if dropping],
            "scheduler_decay_rate": schedule.factors[0] if dropping else 1.0,
        }

    def example(self, inputs: Tensor, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Pictures, thinned to at most 384 columns: fields in physical units (float32), classes (uint8).

        ``TMQ`` (kg/m2), ``PSL`` (Pa) and ``wind`` (speed at the lowest level, m/s) if the model sees the variables that
        they need; ``label`` and ``prediction``. Each is (batch, h, w).
        """
        step = ceil(inputs.shape[-1] / PICTURE_WIDTH)
        thin = (..., slice(None, None, step), slice(None, None, step))
        pictures = {"label": target[thin].to(torch.uint8), "prediction": output.argmax(dim=1)[thin].to(torch.uint8)}
        fields = {
            name: self._physical(inputs[thin], name)
            for name in ("TMQ", "PSL", "UBOT", "VBOT")
            if CHANNELS.index(name) in self.config.data.channels
        }
        if "UBOT" in fields and "VBOT" in fields:
            pictures["wind"] = torch.hypot(fields["UBOT"], fields["VBOT"])
        return pictures | {name: fields[name] for name in ("TMQ", "PSL") if name in fields}

    def _physical(self, inputs: Tensor, name: str) -> Tensor:
        """A variable of prepared inputs in its own units, (batch, h, w) float32."""
        assert self.minimum is not None, "load() comes before example()"
        assert self.extent is not None
        place = self.config.data.channels.index(CHANNELS.index(name))
        return inputs[:, place].float() * self.extent[place] + self.minimum[place]


def build_task(config: Config) -> DeepCAMTask:
    """The task that ``config`` describes."""
    return DeepCAMTask(config)
