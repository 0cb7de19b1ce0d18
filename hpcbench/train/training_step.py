"""The training step: forward and backward passes of micro-batches, reduction over ranks, and the update."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.data.loader import Loader
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.registry import clipping_outside, set_learning_rate
from hpcbench.parallel.batchnorm import RankStatistics
from hpcbench.parallel.compiled import compiled
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.sharded import ShardedGradients
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.context import RunContext
from hpcbench.train.cuda_graph import GraphedStep
from hpcbench.train.data_path import Batch
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.observers import Observers, StepInfo
from hpcbench.train.randomness import sample_keys
from hpcbench.train.whole_step import WholeStep


class TrainingStep:
    """The model, the optimizer, and the reducer that sums gradients over ranks.

    A step is ``accumulate`` for each of its micro-batches, then ``update``; ``observers`` may be set later.
    """

    def __init__(
        self,
        run: RunContext,
        model: nn.Module,
        whole_model: nn.Module,
        optimizer: Any,
        reducer: GradientReducer | ShardedGradients,
        *,
        whole: bool = False,
    ) -> None:
        """``whole``: the step is captured as one graph (``captures_whole_step``)."""
        train, parallel = run.config.train, run.config.parallel
        self.run = run
        self.model = model
        self.whole_model = whole_model
        """The model, or if it is split, sharded or checkpointed, its shapes before that, on the meta device."""
        self.optimizer = optimizer
        self.reducer = reducer
        self.observers = Observers([])
        self.statistics = RankStatistics(model, run.data_ranks.passes)
        self.max_grad_norm = clipping_outside(run.config.optim)
        # If so, a pass is due even if this rank has no samples for it.
        self.waits_in_pass = run.data_ranks.processes > 1 or parallel.shard_states
        self.callable_model: Any = compiled(model) if train.compile else model
        self.whole_step: WholeStep | None = None
        """The step as one graph, if it is captured whole: ``accumulate`` keeps its batch, and ``update`` runs it."""
        self.graph: GraphedStep | None = None
        """The forward and backward pass as a graph, if the step is not one."""
        if whole:
            self.whole_step = WholeStep(self.whole_gradients, optimizer, run.device, clip=self.clip)
        elif train.cuda_graph:
            assert isinstance(reducer, GradientReducer)  # a graph captures no messages (validate_graph)
            reducer.place_gradients()
            self.graph = GraphedStep(self.forward_backward, run.device)
        self.batch: tuple[Tensor, Tensor] | None = None
        """Inputs and targets, on the device, of a step that runs as a whole."""
        self.loss = self.no_loss()
        """This rank's share of the mean loss of the step so far, on the device."""
        # On the device, since a captured graph would freeze a plain number, and the last step may have another weight.
        self.weight = torch.ones((), dtype=run.precision.dtype, device=run.device)

    @property
    def replays(self) -> bool:
        """Whether passes are replayed as a graph."""
        return self.graph is not None or self.whole_step is not None

    def accumulate(
        self, batch: Batch, loader: Loader, epoch: int, step: int, share: float, *, last: bool, number: int = 0
    ) -> None:
        """Add the gradients of a micro-batch of step ``step``, which has the fraction ``share`` of the step's samples.

        The ``last`` one of a step sends gradients during its backward pass. ``number`` is the simulated rank of this
        process, counted from 0, that the batch belongs to.
        """
        run = self.run
        self.statistics.use(number)
        self.statistics.are_averaged = False
        self.reducer.enabled = last and self.graph is None and run.config.parallel.overlap
        if len(batch.indices) == 0 and not self.waits_in_pass:
            return
        with run.phases.phase("compute"):
            keys = sample_keys(run.seed, epoch, batch.indices)
            set_sample_keys(self.model, keys)
            prepared, target = run.task.prepare(batch.inputs, batch.targets, keys)
            inputs = prepared if loader.parts else own_part(prepared, run.mesh.axes)
            # All ranks of a group have the loss of their samples, and gradients are added over all ranks.
            self.weight.fill_(share / run.mesh.shape.spatial_size)
            self.observers.before_backward(step)
            if self.whole_step is not None:
                self.batch = (inputs, target)
                return
            self.loss += (self.graph or self.forward_backward)(inputs, target)
            self.observers.after_backward(step, share)

    def forward_backward(self, inputs: Tensor, target: Tensor) -> Tensor:
        """Add the gradients of the weighted mean loss of a batch; returns that loss."""
        output = self.forward(inputs, target)
        # Without samples there is no mean; the pass is made for the ranks that share batch-norm statistics.
        loss = self.run.task.loss(output, target) * self.weight if len(inputs) else output.sum()
        self.run.precision.backward(loss)
        return loss.detach()

    def whole_gradients(self, inputs: Tensor, target: Tensor) -> Tensor:
        """All gradients of a step with one batch, as ``update`` leaves them to the optimizer; returns its loss."""
        loss = self.forward_backward(inputs, target)
        self.reducer.finish()
        return loss

    def forward(self, inputs: Tensor, target: Tensor) -> Tensor:
        """The model's output in the run's precision, as float32 (float64 in a float64 run).

        Inputs are this rank's part of the samples; the output is that of whole samples.
        """
        with self.run.precision.autocast():
            output: Tensor = self.run.task.forward(self.callable_model, self.run.precision.as_input(inputs), target)
        return output.to(self.run.precision.dtype)

    def update(self, info: StepInfo) -> None:
        """Reduce the remaining gradients, clip them, set the rate, and step."""
        if self.whole_step is not None:
            self.run_whole_step(info, self.whole_step)
            return
        with self.run.phases.phase("compute"):  # its messages pause this phase
            self.reducer.finish()
        self.observers.before_update(info)
        with self.run.phases.phase("optimizer"), self.reducer.record_norms():
            self.clip()
            set_learning_rate(self.optimizer, info.lr)
            self.observers.before_optimizer(info)
            self.optimizer.step()
            self.observers.after_optimizer(info, self.loss)
            self.optimizer.zero_grad(set_to_none=self.graph is None)
        self.loss = self.no_loss()

    def run_whole_step(self, info: StepInfo, whole: WholeStep) -> None:
        """Run the passes over the batch and the optimizer's step as one, all in phase ``compute``.

        No observer is called within it; one that needs this (``looks_at_gradients``) keeps the step from being whole.
        """
        assert self.batch is not None
        with self.run.phases.phase("compute"):
            self.loss += whole(info.lr, *self.batch)
        self.batch = None
        self.observers.after_optimizer(info, self.loss)
        self.loss = self.no_loss()

    def clip(self) -> None:
        """Clip the gradients, unless the optimizer clips them itself or no clipping is asked for."""
        if self.max_grad_norm:
            self.run.precision.unscale(self.optimizer)
            clip_gradients(self.model.parameters(), self.max_grad_norm)

    def no_loss(self) -> Tensor:
        """A loss of zero, on the device."""
        return torch.zeros((), dtype=self.run.precision.dtype, device=self.run.device)

    def average_statistics(self) -> None:
        """Average batch-norm statistics over ranks, as the published evaluation does."""
        self.statistics.average(self.model, self.run.group)

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())
