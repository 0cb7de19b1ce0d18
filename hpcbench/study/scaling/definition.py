"""What a scaling study is: its mode, its sizes, what else it varies, and what all its runs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcbench.batch.job_request import JobRequest
from hpcbench.study.definition import compare_settings, job_request, union
from hpcbench.study.scaling.point_results import Mode
from staging.errors import DataError, InputError

MODES: tuple[Mode, ...] = ("strong", "weak", "throughput")
TIER = "tier"
"""The axis of storage: where the samples are read from in training."""
TIERS = ("shared", "node", "memory")
"""Values of it, beside any folder: where the dataset is, the site's node-local storage, and memory."""


@dataclass(frozen=True)
class Scaling:
    """The definition of a scaling study, as ``study.json`` holds it."""

    mode: Mode
    application: str
    preset: str
    site: str
    """Name of a profile, or its file."""
    nodes: tuple[int, ...]
    ranks_per_node: int
    local_batch_size: int
    """Samples of a rank and micro-batch: of every size (weak, throughput), or of the smallest (strong)."""
    cores_per_rank: int = 0
    gpus_per_rank: int = 0
    accumulation: int = 1
    global_batch_size: int | None = None
    """Of every size; strong scaling alone."""
    instance_nodes: int | None = None
    """Nodes of one instance; throughput alone."""
    repeats: int = 3
    steps: int | None = None
    """Optimizer steps of a run; unset trains to the target."""
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further axes: settings by their dotted name, or ``tier``, with their values."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted settings of all runs."""
    files: tuple[str, ...] = ()
    """YAML files of settings."""
    spatial_size: int = 1
    """Ranks that share a sample."""
    stages: bool = True
    """Whether the dataset is staged to the nodes, where no tier says otherwise."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What else a job asks for: the fields of ``JobRequest`` that are not the default."""
    seed: int = 1
    """Of the first repeat; every run after it has the next one."""
    commands: tuple[str, ...] = ()
    """The commands that made it, as they were given."""
    convergence: str | None = None
    """Folder of the convergence study that the page takes epochs(B) from; a relative path is from the study's folder.
    """

    def as_dict(self) -> dict[str, Any]:
        """The definition as JSON has it."""
        return {"kind": self.mode, **{name: value for name, value in asdict(self).items() if name != "mode"}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: Path) -> Scaling:
        """Read it back. Raises ``DataError`` for what is none; ``path`` only names it."""
        if values.get("kind") not in MODES:
            raise DataError(path, f"is a study of the kind '{values.get('kind')}', not of scaling", "give another one")
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        try:
            for name in ("nodes", "files", "commands"):
                known[name] = tuple(known[name])
            known["vary"] = {name: tuple(each) for name, each in known["vary"].items()}
            if not isinstance(known.get("convergence"), str | None):
                raise TypeError("convergence is not the name of a folder")
            return cls(mode=values["kind"], **known)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(path, f"is damaged ({error})", "restore it or give another folder") from None

    def job_request(self, nodes: int) -> JobRequest:
        """What a job of so many nodes asks for."""
        return replace(job_request(self.request), nodes=nodes, ranks_per_node=self.ranks_per_node)


SAME = ("mode", "application", "preset", "site", "ranks_per_node", "cores_per_rank", "gpus_per_rank",
        "local_batch_size", "accumulation", "global_batch_size", "instance_nodes", "steps", "files", "stages",
        "seed")  # fmt: skip
"""What two runs of a study have in common."""
SAME_OF_JOBS = ("constraint", "modules", "environment", "image", "local_path")
"""What two of its jobs ask for alike."""
OF_SPEED = ("data.workers", "parallel.threads", "train.checkpoint_every")
"""Settings that decide no result of a training, but its speed."""


def grow(old: Scaling, new: Scaling, folder: Path) -> Scaling:
    """The study that has the runs of both. Raises ``InputError`` where they cannot be compared."""
    pairs = [(name.replace("_", " "), getattr(old, name), getattr(new, name)) for name in SAME]
    pairs += [("axes", sorted(old.vary), sorted(new.vary))]
    before_jobs, now_jobs = old.job_request(1), new.job_request(1)
    pairs += [(name.replace("_", " "), getattr(before_jobs, name), getattr(now_jobs, name)) for name in SAME_OF_JOBS]
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
        vary={name: union(old.vary[name], new.vary[name]) for name in new.vary},
        commands=union(old.commands, new.commands),
        convergence=old.convergence,
    )
