"""A whole training step as one function of its batch and, if the device can, as one captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from hpcbench.config.schema import RunConfig
from hpcbench.optim.registry import set_learning_rate
from hpcbench.train.cuda_graph import GraphedStep, Step


def captures_whole_step(config: RunConfig, processes: int, passes: int, *, observed: bool) -> bool:
    """Whether ``train.cuda_graph`` captures the optimizer's step too: one pass per step, on one process.

    Otherwise only the forward and backward pass are captured, as they also are if something needs the gradients before
    the optimizer does: a measurement (``observed``) or a gradient scaler. The same holds for sgd without
    ``optim.fused``, which reads the rate on the host; torch's loops of adam and adamw are capturable.
    """
    train, optim = config.train, config.optim
    one = processes == 1 and passes == 1 and not config.parallel.shard_states
    on_device = optim.fused or optim.name != "sgd"
    return train.cuda_graph and one and not observed and train.precision != "16-mixed" and on_device


class Steps(Protocol):
    """What a whole step needs of an optimizer: torch's own, Fabric's wrapper, or one that scales gradients."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients."""

    def step(self) -> object:
        """Update the parameters with their gradients."""


class WholeStep:
    """Forward and backward pass, clipping and the optimizer's step of one batch, without the host between them.

    ``gradients(inputs, target) -> loss`` adds the gradients of a batch; ``clip()`` clips them, if the optimizer does
    not. It is for one process and one micro-batch per step: nothing within may wait for another rank or for the host.
    With ``capture`` the optimizer must be made ``capturable`` (its rate is a tensor on the device), and a gradient
    scaler works only with optimizers that check for overflow themselves (fused ones, and the layer-wise). Gradients
    are dropped first, and so need neither zeroing nor adding; after a replay ``parameter.grad`` is meaningless.
    """

    def __init__(
        self,
        gradients: Step,
        optimizer: Steps,
        device: torch.device,
        *,
        clip: Callable[[], object] | None = None,
        capture: bool = True,
    ) -> None:
        if capture and not all(isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
            raise ValueError("a captured step would keep the learning rate as it is: make the optimizer capturable")
        self.gradients, self.optimizer, self.clip = gradients, optimizer, clip
        self.run: Step = GraphedStep(self.eager, device) if capture else self.eager

    def __call__(self, rate: float, *batch: Tensor) -> Tensor:
        """Train on a batch at the learning rate ``rate``; returns its loss, on the device."""
        set_learning_rate(self.optimizer, rate)  # type: ignore[arg-type]
        return self.run(*batch)

    def eager(self, *batch: Tensor) -> Tensor:
        """Run the step, operation by operation."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.gradients(*batch)
        if self.clip is not None:
            self.clip()
        self.optimizer.step()
        return loss
