"""The definition of a scaling study: its mode, its sizes, what else it varies, and what all its runs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcbench.batch.job_request import JobRequest
from hpcbench.config.bounds import within
from hpcbench.config.json_record import record
from hpcbench.config.schema import LARGEST_SEED, MOST_REPEATS, MOST_SAMPLES, MOST_STEPS
from hpcbench.study.definition import ADVICE, check_lists, compare_settings, job_request, union
from hpcbench.study.preset_values import compare_presets
from hpcbench.study.scaling.point_results import Mode
from staging.errors import DataError, InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE

MODES: tuple[Mode, ...] = ("strong", "weak", "throughput")
TIER = "tier"
"""The storage axis: where samples are read from in training."""
TIERS = ("shared", "node", "memory")
"""Values of the axis, in addition to any folder: the dataset's own place, the site's node-local storage, and memory."""


@dataclass(frozen=True)
class Scaling:
    """The definition of a scaling study, as ``study.json`` holds it."""

    mode: Mode
    application: str
    preset: str
    site: str
    """Name or file of a profile."""
    nodes: tuple[int, ...] = field(metadata=within(1, MOST_NODES))
    ranks_per_node: int = field(metadata=within(1, MOST_PER_NODE))
    local_batch_size: int = field(metadata=within(1, MOST_SAMPLES))
    """Samples of a rank and micro-batch: of every size (weak, throughput), or of the smallest (strong)."""
    cores_per_rank: int = field(default=0, metadata=within(0, MOST_PER_NODE))
    gpus_per_rank: int = field(default=0, metadata=within(0, MOST_PER_NODE))
    accumulation: int = field(default=1, metadata=within(1, MOST_SAMPLES))
    global_batch_size: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    """Global batch of every size; strong scaling only."""
    instance_nodes: int | None = field(default=None, metadata=within(1, MOST_NODES))
    """Nodes of one instance; throughput only."""
    repeats: int = field(default=3, metadata=within(1, MOST_REPEATS))
    steps: int | None = field(default=None, metadata=within(1, MOST_STEPS))
    """Optimizer steps of a run; unset trains to the target."""
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further axes: settings by their dotted name, or ``tier``, with their values."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted settings of all runs."""
    files: tuple[str, ...] = ()
    """YAML files of settings."""
    spatial_size: int = field(default=1, metadata=within(1, MOST_NODES))
    """Ranks that share a sample."""
    stages: bool = True
    """Whether the dataset is staged to the nodes, unless a tier says otherwise."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What else a job asks for: the fields of ``JobRequest`` that differ from the default."""
    seed: int = field(default=1, metadata=within(0, LARGEST_SEED))
    """Seed of the first repeat; each further repeat adds 10,000, each further instance 1 (``run_matrix.seed_of``)."""
    preset_values: Mapping[str, Any] = field(default_factory=dict)
    """What the preset said when the study began, by dotted names (``preset_values.preset_values``)."""
    commands: tuple[str, ...] = ()
    """The commands that made the study, as they were given."""
    convergence: str | None = None
    """Folder of the convergence study from which the page takes epochs(B); a relative path is from the study's folder.
    """

    def as_dict(self) -> dict[str, Any]:
        """The definition as a JSON object."""
        return {"kind": self.mode, **{name: value for name, value in asdict(self).items() if name != "mode"}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: Path) -> Scaling:
        """Read a definition back. Raises ``DataError`` for anything else; ``path`` only names it in the message."""
        if values.get("kind") not in MODES:
            raise DataError(path, f"is a study of the kind '{values.get('kind')}', not of scaling", "give another one")
        if not isinstance(values.get("convergence"), str | None):
            raise DataError(path, "is damaged (convergence is not the name of a folder)", ADVICE)
        study = record(cls, {**values, "mode": values["kind"]}, path, ADVICE)
        record(JobRequest, study.request, path, ADVICE)
        check_lists({"nodes": study.nodes, **study.vary}, path)
        return study

    def job_request(self, nodes: int) -> JobRequest:
        """What a job of ``nodes`` nodes asks for."""
        return replace(job_request(self.request), nodes=nodes, ranks_per_node=self.ranks_per_node)


SAME = ("mode", "application", "preset", "site", "ranks_per_node", "cores_per_rank", "gpus_per_rank",
        "local_batch_size", "accumulation", "global_batch_size", "instance_nodes", "steps", "files", "stages",
        "seed")  # fmt: skip
"""Fields that must be equal for two studies to share a folder."""
SAME_OF_JOBS = ("constraint", "modules", "environment", "image", "local_path")
"""Fields of the job request that must be equal, too."""
OF_SPEED = ("data.workers", "parallel.threads", "train.checkpoint_every")
"""Settings that do not affect the result of a training, but its speed."""


def grow(old: Scaling, new: Scaling, folder: Path) -> Scaling:
    """The study that has the runs of both. Raises ``InputError`` if they cannot be compared."""
    pairs = [(name.replace("_", " "), getattr(old, name), getattr(new, name)) for name in SAME]
    pairs += [("axes", sorted(old.vary), sorted(new.vary))]
    before_jobs, now_jobs = old.job_request(1), new.job_request(1)
    pairs += [(name.replace("_", " "), getattr(before_jobs, name), getattr(now_jobs, name)) for name in SAME_OF_JOBS]
    pairs += [(f"preset's {name}", *values) for name, *values in compare_presets(old.preset_values, new.preset_values)]
    pairs += compare_settings(old.settings, new.settings)
    preset = dict.fromkeys(OF_SPEED, "the preset's")
    pairs += [(name, {**preset, **old.settings}[name], {**preset, **new.settings}[name]) for name in OF_SPEED]
    for name, before, now in pairs:
        if before != now:
            raise InputError(
                f"{folder} holds another study: its {name} is {before}, this one's {now}; give another --study-dir"
            )
    return replace(
        new,
        nodes=tuple(sorted({*old.nodes, *new.nodes})),
        repeats=max(old.repeats, new.repeats),
        vary={name: union(old.vary[name], new.vary[name]) for name in old.vary},
        commands=union(old.commands, new.commands),
        convergence=old.convergence,
        preset_values=old.preset_values,
    )
