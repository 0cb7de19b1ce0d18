"""Dropout whose mask belongs to the sample, so that order, batches, workers and ranks do not change a run."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hpcbench.train.randomness import uniform


class SampleDropout(nn.Module):
    """Inverted dropout with rate ``p``; the mask is a function of the sample's key and of ``stream`` alone.

    Layers of one model that should draw differently need different ``stream`` numbers. The keys come from
    ``set_sample_keys``; training with ``p > 0`` without them raises ``RuntimeError``. Identity in evaluation.
    """

    keys: Tensor | None

    def __init__(self, p: float, stream: int) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout rate p ({p}) must be at least 0 and below 1")
        self.p = p
        self.stream = stream
        self.batch = 0
        self.register_buffer("keys", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (batch, ...) with elements zeroed at rate ``p`` and the others divided by ``1 - p``."""
        if not self.training or self.p == 0:
            return x
        if self.keys is None or self.batch != len(x):
            raise RuntimeError(
                f"dropout holds keys of {self.batch} samples but got a batch of {len(x)}; "
                "call set_sample_keys(model, keys) before each training step"
            )
        mask = uniform(self.keys[: len(x)], self.stream, x.shape[1:].numel()) >= self.p
        return x * (mask.reshape(x.shape).to(x.dtype) / (1 - self.p))

    def extra_repr(self) -> str:
        """Rate and stream, for printing the model."""
        return f"p={self.p}, stream={self.stream}"


def set_sample_keys(model: nn.Module, keys: Tensor) -> None:
    """Give the ``keys``, (batch,) int64, of the next batch to every ``SampleDropout`` of ``model``.

    The keys are copied once to the device of the model, into a tensor that stays in place until a larger batch comes,
    so that a captured graph reads the new keys.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, SampleDropout) and layer.p > 0]
    if not layers:
        return
    held = layers[0].keys
    if held is None or len(held) < len(keys):
        device = next((parameter.device for parameter in model.parameters()), keys.device)
        held = torch.empty(len(keys), dtype=torch.int64, device=device)
    held[: len(keys)].copy_(keys, non_blocking=True)
    for layer in layers:
        layer.keys, layer.batch = held, len(keys)
