"""A task made from functions: a loss, and a metric if that is a different one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from hpcbench.train.task import Task
from staging.errors import InputError

Function = Callable[[Tensor, Tensor], Tensor]
"""A function of a batch's output and target that returns one number; a metric may return one for each sample."""


class PlainTask(Task):
    """Trains on ``loss``, a mean over the batch. The metric is the mean over samples of ``metric``, or of the loss."""

    def __init__(
        self, loss: Function, metric: Function | None = None, better: Literal["lower", "higher"] = "lower",
        name: str = "loss",
    ) -> None:  # fmt: skip
        self.loss_function, self.metric_function = loss, metric or loss
        self.metric, self.columns, self.better = name, (name,), better
        self.metric_key = "eval_error" if better == "lower" else "eval_accuracy"

    def forward(self, model: Callable[..., Any], inputs: Tensor, target: Tensor) -> Tensor:
        """The model's output. Raises ``InputError`` for one that is no tensor."""
        output = model(inputs)
        if not isinstance(output, Tensor):
            raise InputError(
                f"the model returned a {type(output).__name__}, not a tensor; wrap it in a module that returns the one "
                "that the loss takes"
            )
        return output

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of the batch. Raises ``InputError`` for more or less than one number."""
        return single_loss(self.loss_function(output, target), "the loss function")

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """The metric of each sample; a function that returns one number per batch is called for each sample alone."""
        if not len(output):
            return output.new_zeros((0, 1), dtype=torch.float64)
        values = torch.as_tensor(self.metric_function(output, target))
        if values.dim() == 1 and len(values) == len(output):
            return values.double()[:, None]
        if values.numel() != 1:
            raise InputError(
                f"{self.metric} of a batch of {len(output)} has the shape {tuple(values.shape)}; return a number, or "
                "one for each sample"
            )
        alone = [
            torch.as_tensor(self.metric_function(output[row : row + 1], target[row : row + 1]), device=output.device)
            for row in range(len(output))
        ]
        return torch.stack([value.reshape(()) for value in alone]).double()[:, None]


def single_loss(loss: Any, maker: str) -> Tensor:
    """The loss that ``maker`` returned, without dimensions. Raises ``InputError`` unless it is a tensor of a number."""
    if not isinstance(loss, Tensor):
        raise InputError(f"{maker} returned a {type(loss).__name__}; return the loss of the batch, a tensor")
    if loss.numel() != 1:
        raise InputError(f"{maker} returned a loss of the shape {tuple(loss.shape)}; return the mean over the batch")
    return loss.reshape(())
