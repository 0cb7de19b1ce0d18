"""Everything that the training loop uses, in one place: ranks, device, data, model, optimizer and logs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import dataset_files
from hpcbench.data.loader import BatchLoader, Loader, default_workers, open_loader
from hpcbench.data.sampler import Shards, epoch_sizes
from hpcbench.data.shard import some_sample
from hpcbench.measure.memory import peak_memory_bytes
from hpcbench.measure.mllog import RunLog
from hpcbench.measure.phases import Phases
from hpcbench.measure.step_times import StepTimes
from hpcbench.measure.system import accelerator, processor
from hpcbench.optim.registry import clipping_outside
from hpcbench.parallel.batchnorm import RankStatistics
from hpcbench.parallel.data_ranks import DataRanks
from hpcbench.parallel.fabric import Fabric
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.sharded import ShardedGradients
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.parallel.spatial.spans import Span
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.arrivals import Arrivals
from hpcbench.train.build import open_data
from hpcbench.train.console import Console
from hpcbench.train.graph import GraphedStep
from hpcbench.train.interrupt import Interrupts
from hpcbench.train.losses import LossBuffer
from hpcbench.train.node_shard import NodeShard
from hpcbench.train.noise_scale import NoiseScale
from hpcbench.train.own_figures import OwnFigures
from hpcbench.train.state import State
from hpcbench.train.task import Task
from hpcbench.train.trust_ratios import TrustRatios
from staging.ranks.launch import Launch

ROW = ("epoch", "step", "samples", "lr", "train_loss", "train_s", "eval_s", "elapsed_s", "samples_per_s")
"""Columns of ``epochs.csv`` beside the metrics."""


@dataclass
class Run:
    """Everything that the loop uses. The folder is written by rank 0 alone."""

    application: Application
    config: RunConfig
    launch: Launch
    group: Group
    mesh: Mesh
    data_ranks: DataRanks
    """The ranks that train together, of which this process may simulate several."""
    fabric: Fabric
    phases: Phases
    folder: RunFolder
    log: RunLog
    console: Console
    interrupts: Interrupts
    seed: int
    threads: int
    task: Task
    training: Any
    validation: Any
    model: nn.Module
    whole_model: nn.Module
    """The model, or where it is split, sharded or recomputed, its shapes as they were before, on the meta device."""
    optimizer: Any
    reducer: GradientReducer | ShardedGradients
    started: str
    state: State = field(default_factory=State)
    scores: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    metrics: dict[str, float] = field(default_factory=dict)
    arrivals: Arrivals | None = None
    """The staging under way while the run trains."""
    shard: NodeShard | None = None
    """This node's part of the training set, where it has only one."""
    shards: Shards | None = None
    """The parts of all nodes."""
    slab: Span | None = None
    """The rows of every sample that this node has staged, where it has not all of them."""

    def __post_init__(self) -> None:
        self.device = self.fabric.device
        self.closing = threading.Lock()
        self.losses = LossBuffer(self.group, self.device)
        self.precision = str(self.fabric._precision.precision)
        self.double = self.precision == "64-true"
        self.dtype = torch.float64 if self.double else torch.float32
        self.step_loss = self.no_loss()
        # On the device, since a captured graph would keep a plain number, and the last step may have another weight.
        self.weight = torch.ones((), dtype=self.dtype, device=self.device)
        self.phase = self.phases.phase
        self.step_times = StepTimes(self.phases, self.config.measure.warmup_steps)
        parallel = self.config.parallel
        simulated = parallel.simulated_nodes is not None and parallel.simulated_ranks is None
        self.own = OwnFigures(self.group, self.step_times, self.threads, simulated)
        self.checkpoints_written = self.evaluations = 0
        asked = self.config.data.workers
        self.workers = default_workers(self.threads) if asked is None else asked
        self.open_loaders()
        train = self.config.train
        self.statistics = RankStatistics(self.model, self.data_ranks.turns)
        # Then a pass is due also where this rank has no samples for it.
        self.waits_in_pass = self.data_ranks.processes > 1 or self.config.parallel.shard_states
        self.forward_model: Any = torch.compile(self.model) if train.compile else self.model
        self.max_grad_norm = clipping_outside(self.config.optim)
        self.graph = GraphedStep(self._backward, self.device) if train.cuda_graph else None
        every = train.trust_ratios_every
        self.trust_ratios = TrustRatios(self.optimizer.optimizer, self.model, every) if every else None
        scaler = getattr(self.fabric._precision, "scaler", None)
        self.noise_scale = (
            NoiseScale(self.model.parameters(), self.group, train.noise_scale_every, scaler, self.mesh)
            if train.noise_scale_every
            else None
        )

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes."""
        return self.launch.rank == 0

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an epoch, the same number on every rank; those of simulated ranks count each."""
        return len(self.micro_batch_sizes) * self.data_ranks.turns

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch."""
        return -(-len(self.micro_batch_sizes) // self.config.train.accumulation)

    @property
    def global_batch_size(self) -> int:
        """Samples of an optimizer step, over all ranks and micro-batches."""
        return self.config.train.local_batch_size * self.config.train.accumulation * self.data_ranks.total

    @property
    def shard_nodes(self) -> int | None:
        """Nodes among which the training set is dealt, real or simulated; ``None`` where each has all of it."""
        if self.config.staging.placement != "shard":
            return None
        return self.config.parallel.simulated_nodes or self.launch.nodes

    @property
    def device_name(self) -> str:
        """The accelerator's or the processor's name."""
        return (
            processor()["host_processor_model_name"]
            if self.device.type == "cpu"
            else accelerator()["accelerator_model_name"]
        )

    def dataset_files(self) -> list[Path]:
        """Every file that the run reads: those that all samples share, then training and validation samples."""
        return dataset_files(self.application, self.config)

    def read_from(self, root: Path) -> None:
        """Read the dataset from another place, where it was staged to."""
        self.config.data.root = str(root)
        self.training, self.validation = open_data(self.application, self.config)
        self.open_loaders()

    def open_loaders(
        self, config: RunConfig | None = None, training: Any = None, validation: Any = None, stored: Span | None = None
    ) -> None:
        """A loader for each split, of files that ``config`` names; processes or threads start when first needed.

        Of samples that ranks share, it reads this rank's part where the task prepares parts; ``stored`` as ``part_of``.
        """

        def opened(split: str, samples: Any) -> Loader:
            axes = self.mesh.axes if self.task.reads_parts(split == "train") else {}
            return open_loader(
                self.application, config or self.config, split, samples, self.workers, self.device, axes, stored
            )

        self.training_loader = opened("train", self.training if training is None else training)
        self.validation_loader = opened("validation", self.validation if validation is None else validation)
        self.cut_epoch()

    def cut_epoch(self) -> None:
        """Share an epoch out, as the shards have it."""
        ranks, batch, last = self.data_ranks.total, self.config.train.local_batch_size, self.config.data.last_batch
        self.micro_batch_sizes = epoch_sizes(len(self.training), ranks, batch, last, self.shards)
        """Samples of every micro-batch of an epoch, over all ranks."""

    def first_batch(self) -> tuple[Tensor, Tensor]:
        """The first training sample as the model sees it, (1, ...)."""
        inputs, targets = BatchLoader(self.training, 0, pin=False).reader.read(np.array([some_sample(self.training)]))
        prepared, target = self.task.prepare(self.to_device(inputs), self.to_device(targets), None)
        return self.as_input(prepared), target

    def as_input(self, prepared: Tensor) -> Tensor:
        """Fractions in the run's type; integers, such as tokens, as they are."""
        return prepared.to(self.dtype) if prepared.is_floating_point() else prepared

    def peak_memory(self) -> int:
        """Largest peak over ranks, in bytes."""
        return int(self.group.max(float(peak_memory_bytes(self.device))))

    def no_loss(self) -> Tensor:
        """A loss of zero, on the device."""
        return torch.zeros((), dtype=self.dtype, device=self.device)

    def to_device(self, tensor: Tensor) -> Tensor:
        """Move a batch to the device without waiting for it."""
        return tensor.to(self.device, non_blocking=True)

    def own_part(self, prepared: Tensor, loader: Loader) -> Tensor:
        """This rank's part of prepared inputs: all of them where ``loader`` reads no more, else cut out of them."""
        return prepared if loader.parts else own_part(prepared, self.mesh.axes)

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's output in the run's precision, as float32 (float64 in a float64 run).

        Inputs are this rank's part of samples, of which the output is whole.
        """
        with self.fabric.autocast():
            output: Tensor = self.forward_model(self.as_input(inputs))
        return output.to(self.dtype)

    def gradients_of(self, inputs: Tensor, target: Tensor, weight: float) -> Tensor:
        """Add the gradients of ``weight`` times the mean loss of a batch; returns that loss."""
        # All ranks of a group have the loss of their samples, and gradients are added over all ranks.
        self.weight.fill_(weight / self.mesh.shape.spatial_size)
        if self.noise_scale is not None:
            self.noise_scale.start_part(self.state.step + 1)
        loss = self._backward(inputs, target) if self.graph is None else self.graph(inputs, target)
        if self.noise_scale is not None:
            self.noise_scale.end_part(self.state.step + 1, weight)
        return loss

    def _backward(self, inputs: Tensor, target: Tensor) -> Tensor:
        output = self.forward(inputs)
        # No samples have no mean; the pass itself is for the ranks that share batch-norm statistics.
        loss = self.task.loss(output, target) * self.weight if len(inputs) else output.sum()
        self.fabric.backward(loss)
        return loss.detach()

    def average_statistics(self) -> None:
        """Average batch-norm statistics over ranks, as the published evaluation does."""
        self.statistics.average(self.model, self.group)

    def flush_losses(self) -> None:
        """Fetch the losses since the last look, write them, and show them."""
        self.phases.settle()
        rows = self.losses.flush(self.state.epoch + 1)
        self.state.epoch_losses += rows
        if self.is_first and rows:
            self.folder.append_rows(
                "steps.csv", [dict(zip(("epoch", "step", "samples", "lr", "loss"), row, strict=True)) for row in rows]
            )
            self.console.loss(rows[-1][4])
        noise = self.noise_scale.flush(self.state.epoch + 1) if self.noise_scale is not None else []
        if self.is_first and noise:
            self.folder.append_rows("noise_scale.csv", noise)
        ratios = self.trust_ratios.flush(self.state.epoch + 1) if self.trust_ratios is not None else []
        if self.is_first and ratios:
            self.folder.append_rows("trust_ratios.csv", ratios)

    def is_better(self, value: float, other: float) -> bool:
        """Whether a value of the metric is better than another."""
        return value < other if self.task.better == "lower" else value > other

    def already_reached(self) -> bool:
        """Whether a resumed run had reached its target before; where that was within an epoch, this ends it."""
        if self.state.history:
            self.metrics = {key: value for key, value in self.state.history[-1].items() if key not in ROW}
        reached = bool(self.state.history) and self.reached_target()
        if reached and self.state.evaluated > self.state.epoch:
            self.log.epoch_stop(self.state.epoch + 1)
        return reached

    def reached_target(self) -> bool:
        """Whether the last evaluation meets the target."""
        target = self.config.train.target
        value = self.metrics[self.task.metric]
        return target is not None and (value == target or self.is_better(value, target))

    def stop_clock(self, status: str, reason: str = "") -> None:
        """The scored time ends."""
        self.log.run_stop(status, reason)  # type: ignore[arg-type]
        self.own.stop()
