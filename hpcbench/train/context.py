"""The context of a run: configuration, ranks, mesh, folder and log. It does not change during the run."""

from __future__ import annotations

from dataclasses import dataclass

from torch import device

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.measure.communication import Communication
from hpcbench.measure.mllog import RunLog
from hpcbench.measure.phases import Phases
from hpcbench.measure.system import accelerator, processor
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.precision import PrecisionPolicy
from hpcbench.parallel.simulated_ranks import DataRanks
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.console import Console
from hpcbench.train.progress import Progress
from hpcbench.train.task import Task
from staging.ranks.abort import AbortWatcher
from staging.ranks.launch import Launch
from staging.ranks.signals import Interrupts


@dataclass(frozen=True)
class RunContext:
    """The context of a run. ``DataPath`` reads its data, ``TrainingStep`` trains its model."""

    application: Application
    config: RunConfig
    launch: Launch
    group: Group
    watcher: AbortWatcher
    """Ends all ranks when one of them fails."""
    mesh: Mesh
    data_ranks: DataRanks
    """The ranks that train together, of which this process may simulate several."""
    device: device
    precision: PrecisionPolicy
    threads: int
    """Compute threads of this rank."""
    seed: int
    task: Task
    phases: Phases
    """Where the time of this process goes."""
    progress: Progress
    """What this rank is doing now, for the code that watches it."""
    communication: Communication
    """The messages that steps wait for."""
    folder: RunFolder
    """Written only by rank 0."""
    log: RunLog
    console: Console
    interrupts: Interrupts
    started: str
    """ISO 8601 time in UTC."""

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes."""
        return self.launch.rank == 0

    @property
    def global_batch_size(self) -> int:
        """Samples of an optimizer step, over all ranks and micro-batches."""
        return self.config.train.local_batch_size * self.config.train.accumulation * self.data_ranks.total

    @property
    def passes_per_step(self) -> int:
        """Micro-batches of an optimizer step on this rank; those of each simulated rank count separately."""
        return self.config.train.accumulation * self.data_ranks.passes

    @property
    def shard_nodes(self) -> int | None:
        """Real or simulated nodes that the training set is divided among; ``None`` if each has all of it."""
        if self.config.staging.placement != "shard":
            return None
        return self.config.parallel.simulated_nodes or self.launch.nodes

    @property
    def device_name(self) -> str:
        """The name of the accelerator or CPU."""
        return (
            processor()["host_processor_model_name"]
            if self.device.type == "cpu"
            else accelerator()["accelerator_model_name"]
        )
