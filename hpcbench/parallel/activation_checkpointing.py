"""Activation checkpointing: parts of a model keep only their input, and recompute the rest when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(modules: Iterable[nn.Module]) -> None:
    """Let each of ``modules`` keep no activations inside it; their names and parameters stay.

    Batch-norm statistics are updated once, in the first pass. Random layers must draw from what they are given, as
    ``SampleDropout`` does.
    """
    for module in modules:
        module.forward = _Checkpointed(module, module.forward)


class _Checkpointed:
    """The forward pass of a module, checkpointed while gradients are wanted."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        self.module, self.forward = module, forward

    def __call__(self, *inputs: Any) -> Any:
        """Run the module's own forward pass."""
        if not torch.is_grad_enabled():
            return self.forward(*inputs)
        if torch.compiler.is_compiling():  # which cannot trace contexts
            return checkpoint(self.traced, *inputs, use_reentrant=False, preserve_rng_state=False)
        return checkpoint(
            self.forward, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=self.contexts
        )

    def traced(self, *inputs: Any) -> Any:
        """The forward pass for the compiler, which updates statistics once; or, where it gives up, its eager form."""
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:  # not within a backward pass
            return self.forward(*inputs)
        with _same_statistics(self.module):
            return self.forward(*inputs)

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Contexts around the first pass and around the second."""
        return nullcontext(), _same_statistics(self.module)


@contextmanager
def _same_statistics(module: nn.Module) -> Iterator[None]:
    """Restore the batch-norm statistics on exit to what they were before."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.training]
    buffers = [buffer for layer in layers for buffer in layer.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
