"""The summary of a run: what ``summary.json`` holds, with its types."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from hpcbench.config.read_dataclass import from_json
from hpcbench.exits import Cause
from hpcbench.parallel.mesh_shape import mesh_shape
from staging.bounds import shown
from staging.errors import DataError, InputError

SCHEMA = 1
MOST = sys.float_info.max
"""The largest number that a metric can be."""

Status = Literal["success", "target_not_reached", "aborted"]


@dataclass
class Summary:
    """One run in numbers. Times are in seconds, rates in samples per second, sizes in bytes."""

    application: str
    title: str
    preset: str
    status: Status = "aborted"
    cause: Cause | None = None
    """Why the run ended as it did, for programs: ``target``, ``epochs``, ``steps``, ``diverged``, ``signal``, ..."""
    signal: str | None = None
    """Name of the signal where that is the cause, such as ``SIGUSR1``."""
    reason: str = ""
    """Why the run ended as it did, in words."""
    complete: bool = True
    """Whether the work after the clock, such as baselines, was done; a run that was killed in it can be resumed."""
    seed: int = 0
    metric: str = ""
    better: Literal["lower", "higher"] = "lower"
    target: float | None = None
    best: float | None = None
    """Best value of the metric over all evaluations."""
    epochs: float = 0
    """Until the last evaluation; like ``epochs_to_target``, whole unless ``train.evaluations_per_epoch`` is above 1."""
    steps: int = 0
    """Optimizer steps."""
    samples: int = 0
    """Training samples seen, over all epochs and ranks."""
    checkpoints: int = 0
    """Written over all attempts."""
    evaluations: int = 0
    """Made over all attempts."""
    epochs_to_target: float | None = None
    time_to_solution_s: float = 0.0
    """From run_start to run_stop."""
    wall_s: float = 0.0
    """Wall time of the processes of all attempts, from start to page; ``phases_s`` adds up to it."""
    gaps_s: float = 0.0
    """Time between the attempts of a resumed run, including what was lost when one was killed."""
    phases_s: dict[str, float] = field(default_factory=dict)
    world_size: int = 1
    spatial: str = "1"
    """Ranks that share each sample: ``4``, or ``2x2`` in two dimensions."""
    simulated_ranks: int | None = None
    """Data-parallel ranks whose work each of ``world_size`` ranks did, pass after pass; unset: its own. Times as
    measured."""
    simulated_nodes: int | None = None
    """Nodes that the ranks were assigned to, where these were not real."""
    batchnorm_group_size: int = 1
    nodes: int = 1
    ranks_per_node: int = 1
    threads: int = 1
    """Compute threads per rank."""
    device: str = "cpu"
    """Name of the device's model."""
    device_type: str = ""
    """``cpu``, ``cuda``, ...; unset in summaries of earlier versions."""
    precision: str = "32-true"
    channels_last: bool = True
    local_batch_size: int = 0
    accumulation: int = 1
    global_batch_size: int = 0
    peak_lr: float | None = None
    """Peak learning rate, scaled with the batch where the run asked for that."""
    train_samples: int = 0
    validation_samples: int = 0
    simulated_data: str = ""
    """What the simulation of the dataset recorded, as JSON text; empty where it was not simulated."""
    samples_per_s: float | None = None
    """Median of training over the rows of ``epochs.csv`` after the first; unset for a single row."""
    warm_samples_per_s: float | None = None
    """Samples/s of training over the optimizer steps after ``measure.warmup_steps``; unset where there were none."""
    parameters: int = 0
    flops_forward_per_sample: int = 0
    flops_training_per_sample: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last evaluation."""
    noise_scale: float | None = None
    """Gradient noise scale B_simple in samples, from sums over all measurements; unset where it was not resolved."""
    noise_scale_low: float | None = None
    """Lower end of its 95 % interval; 0 where there is none."""
    noise_scale_high: float | None = None
    """Upper end; unset where there is none, such as where the gradient is lost in noise."""
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metrics of each baseline on the same validation set."""
    peak_memory_bytes: int = 0
    """Largest over ranks: of the accelerator, or of the process where there is none."""
    checkpoint_stall_s: float = 0.0
    """How long checkpoints held the training."""
    checkpoint_longest_stall_s: float = 0.0
    """The longest that one checkpoint held it."""
    checkpoint_write_bytes: int = 0
    checkpoint_write_s: float = 0.0
    """Time to write them, alongside the training where they are asynchronous."""
    checkpoint_read_bytes: int = 0
    checkpoint_read_s: float = 0.0
    """Time to read and verify those that the run was resumed from."""
    train_bytes: int = 0
    """Bytes of the files of training samples where the dataset lies; of more than 256 an estimate. 0: not known."""
    validation_bytes: int = 0
    """The same for the validation samples."""
    folder_bytes: int = 0
    """Bytes of the run folder at the end, with its checkpoints but without the page. 0: not known."""
    energy_j: float | None = None
    """Joules of all nodes from run_start to run_stop, as far as ``energy_note`` says; unset where nothing was read."""
    energy_source: str = ""
    """The counters that gave them: pm_counters, NVML, RAPL, ..."""
    energy_note: str = ""
    """What the joules cover, or why there are none."""
    slow_nodes: list[str] = field(default_factory=list)
    """Nodes that were slower than the others, each in words."""
    resumed: int = 0
    """How often the run was resumed."""
    started: str = ""
    """ISO 8601 time in UTC."""
    division: str = "open"
    ruleset: str = "3.0.0"
    schema: int = SCHEMA

    @property
    def simulating(self) -> str:
        """Text after the number of ranks where these do the work of more: `` simulating 64``; else empty."""
        return "" if self.simulated_ranks is None else f" simulating {self.data_parallel_size * self.simulated_ranks:,}"

    @property
    def data_parallel_size(self) -> int:
        """Ranks, or groups of ranks, that have samples of their own: the size of the mesh along ``data``."""
        return mesh_shape(self.world_size, self.spatial).data

    @property
    def splitting(self) -> str:
        """Text after the number of ranks where these share samples: `` as 2 x 4 (data x spatial)``; else empty."""
        return "" if self.spatial == "1" else f" as {mesh_shape(self.world_size, self.spatial).words} (data x spatial)"

    def to_json(self) -> str:
        """The summary as JSON text; numbers that are not finite become null."""
        return json.dumps(finite(asdict(self)), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str | Path = "summary.json") -> Summary:
        """Read a summary; ``path`` only names it in errors.

        Raises ``DataError`` for text that is not JSON, another schema, missing keys, and values of a wrong type or out
        of range. Unknown keys are ignored.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(path, f"is not JSON ({error})", "the run that writes it may not have ended") from error
        if not isinstance(values, dict) or "schema" not in values:
            raise DataError(path, "has no key 'schema', so it is not the summary of a run")
        if values["schema"] != SCHEMA:
            raise DataError(
                path, f"has schema {values['schema']}, this version reads {SCHEMA}", "use the hpcbench that wrote it"
            )
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in needed if name not in values]:
            raise DataError(path, f"lacks the keys {', '.join(missing)}")
        try:
            return _checked(cls, values)
        except InputError as error:
            raise DataError(path, f"is damaged ({error})", "restore it, or leave the run out") from None


def finite(value: Any) -> Any:
    """``value`` with every float that is not finite replaced by ``None``, since JSON has no such number."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _checked(kind: type[Summary], values: Mapping[str, Any]) -> Summary:
    """The summary that ``values`` hold. Raises ``InputError`` for the first one that it cannot have."""
    scores = {name: values[name] for name in ("metrics", "baselines") if name in values}
    summary = from_json(kind, {key: value for key, value in values.items() if key not in scores}, "",
                        ignore_unknown=True)  # fmt: skip
    for name in ("world_size", "nodes", "ranks_per_node"):
        if getattr(summary, name) < 1:
            raise InputError(f"{name} ({getattr(summary, name)}) must be at least 1")
    _ = summary.data_parallel_size
    summary.metrics = _numbers(scores.get("metrics", {}), "metrics")
    baselines = _mapping(scores.get("baselines", {}), "baselines")
    summary.baselines = {name: _numbers(metrics, f"baselines.{name}") for name, metrics in baselines.items()}
    return summary


def _numbers(metrics: Any, key: str) -> dict[str, float]:
    """Metrics by name, with nan for null. Raises ``InputError`` for anything but numbers and null."""
    numbers = {}
    for name, value in _mapping(metrics, key).items():
        if isinstance(value, bool) or not isinstance(value, int | float | None) or abs(value or 0) > MOST:
            raise InputError(f"{key}.{name} ({shown(value)}) must be a number or null")
        numbers[name] = math.nan if value is None else float(value)
    return numbers


def _mapping(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{key} ({shown(value)}) must be a mapping of names to values")
    return value
