"""What a scientific problem gives the training loop: batch preparation, loss, per-sample scores, metrics, log keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn

from hpcbench.config.schema import RunConfig


class Task(ABC):
    """The problem that a model is trained on.

    ``metric`` names the entry of ``metrics()`` that is compared with ``train.target`` and ``better`` its direction;
    ``metric_key`` is its key in an official log. ``columns`` names the columns of ``score``.
    """

    metric: str
    metric_key: Literal["eval_error", "eval_accuracy"]
    better: Literal["lower", "higher"]
    columns: tuple[str, ...]

    def load(self, config: RunConfig) -> None:
        """Read what the task needs from the dataset that ``config`` names, such as statistics.

        Called once, inside the timed region; ``config.data.root`` is the folder that the dataset was staged to.
        """

    def reads_parts(self, training: bool) -> bool:
        """Whether ``prepare`` gives the same result for a part of the inputs as for that part of whole samples.

        Then a rank that shares samples with others may read only its own part of their inputs, in training or in
        evaluation. Targets are always whole.
        """
        return False

    def prepare(self, inputs: Tensor, targets: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        """Turn a batch as stored into what model and loss expect, on the device.

        ``inputs`` and ``targets`` are batches of what the dataset returns. ``keys`` (batch,) int64 on the CPU are
        random bits that depend only on seed, epoch and sample (for augmentation); ``None`` in evaluation.
        """
        return inputs, targets

    def forward(self, model: Callable[..., Any], inputs: Tensor, target: Tensor) -> Any:
        """Output of ``model`` for a prepared batch, in training and in evaluation.

        By default ``model(inputs)``; a model that computes its own loss takes ``target``, too.
        """
        return model(inputs)

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean loss over the batch, a scalar."""

    @abstractmethod
    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """Scores of each sample, (batch, len(columns)) float64: everything that ``metrics`` needs of it."""

    def check_batch(self, model: nn.Module, inputs: Tensor, target: Tensor) -> None:
        """Look at a prepared batch of an evaluation, of real samples, as ``forward`` gets it, after its forward pass.

        ``model`` is in evaluation mode, and not compiled. Raises ``InputError`` for one that the task cannot score.
        """

    def metrics(self, scores: Tensor) -> dict[str, float]:
        """Metrics of the whole set from the scores of all samples, (samples, len(columns)) float64, in sample order.

        By default the mean of every column, under the column's name.
        """
        return dict(zip(self.columns, scores.mean(dim=0).tolist(), strict=True))

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Optimizer groups; a group may set its own ``weight_decay``."""
        return [{"params": [p for p in model.parameters() if p.requires_grad]}]

    def log_keys(self, steps_per_epoch: int) -> dict[str, Any]:
        """Hyperparameters that an official log of this benchmark must hold, by key."""
        return {}

    def example(self, inputs: Tensor, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """What to keep of a few validation samples for the report's pictures, by name; batch first."""
        return {}
