"""What a site is to a job: its scheduler, launcher and nodes, and what it wants to read in a script.

A profile is a YAML file with the fields of ``Site``; ``node`` has those of ``Node``. Those of the suite lie in
``profiles/``, made from the sites' public pages; a user's own lie in the folder that ``HPCBENCH_SITES`` names, or in
``~/.config/hpcbench/sites``, and come first.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcbench.application import suggest
from hpcbench.batch.words import check_text, check_variables, time_s
from staging.errors import InputError

SchedulerName = Literal["slurm", "pbs", "lsf", "flux", "local"]
LauncherName = Literal["srun", "pals", "mpich", "openmpi", "jsrun", "flux"]
PROFILES = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class Node:
    """A compute node as a job sees it; ``None`` where a profile does not know."""

    cores: int | None = None
    """Physical cores that a job may use."""
    threads_per_core: int = 1
    """What the scheduler counts for each of them."""
    gpus: int = 0
    """Accelerators, as programs count them (an AMD MI250X is two)."""
    gpu: str = ""
    """Their model."""
    memory_gib: int | None = None


@dataclass(frozen=True)
class Site:
    """A machine, or a part of one with nodes of one kind."""

    name: str
    title: str
    scheduler: SchedulerName
    launcher: LauncherName
    node: Node = field(default_factory=Node)
    pages: tuple[str, ...] = ()
    """Addresses of the public pages that this was made from."""
    checked: str = ""
    """Date on which they were read."""
    local_path: str = "/tmp"  # noqa: S108 - a place that every node has
    """Node-local folder; may name variables of the job, as in ``$TMPDIR``."""
    account_required: bool = False
    queue: str = ""
    """Partition or queue of a job that names none."""
    qos: str = ""
    constraint: str = ""
    """Slurm's ``--constraint``, or what PBS has beside the numbers in ``select``."""
    max_time: str = ""
    """Longest time of a job there, HH:MM:SS."""
    whole_nodes: bool = False
    """Jobs have their nodes to themselves anyway, so that cores, memory and GPUs are not asked for."""
    gpu_request: Literal["gpus-per-node", "gpus-per-task", "gres", "none"] = "gpus-per-node"
    """How Slurm is asked for GPUs."""
    gpu_mode: Literal["shared", "exclusive_process"] = "shared"
    """LSF's mode of GPUs."""
    gpu_bind: str = ""
    """The launcher's word for which GPUs a rank sees or is near to; empty: all of the node."""
    cpu_bind: str = ""
    """The launcher's word for cores, where it is not one block of cores for each rank.

    A list or a mask (with a colon) is for a rank on each GPU, and not used for another number of ranks.
    """
    mpi: str = ""
    """Slurm's ``--mpi``; empty: the site's default."""
    directives: tuple[str, ...] = ()
    """Further lines for the scheduler, without its prefix, such as ``--licenses=scratch``."""
    module_paths: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    """Words that run a program in an image, with ``{image}`` in them: ``apptainer exec --nv {image}``."""
    notes: str = ""
    """What a user of the site should know, in a sentence or two."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a value that could not stand in a script."""
        for each in (self.queue, self.qos, self.constraint, self.gpu_bind, self.cpu_bind, self.mpi):
            check_text(f"site {self.name}", each)
        for each in self.directives:
            check_text(f"site {self.name}: directives", each, spaces=True)
        check_variables(f"site {self.name}: local_path", self.local_path)
        if self.max_time:
            time_s(f"site {self.name}: max_time", self.max_time)


def folders(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Where profiles are looked for, the first match counting."""
    environ = os.environ if environ is None else environ
    own = environ.get("HPCBENCH_SITES") or str(Path.home() / ".config" / "hpcbench" / "sites")
    return [Path(own), PROFILES]


def known_sites(environ: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Profiles by name; the user's own hide those of the suite."""
    found: dict[str, Path] = {}
    for folder in reversed(folders(environ)):
        found |= {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return dict(sorted(found.items()))


def find_site(name: str, environ: Mapping[str, str] | None = None) -> Site:
    """The site called ``name``, or of the profile in the file ``name``. Raises ``InputError`` for none or a bad one."""
    known = known_sites(environ)
    if name in known:
        return read_site(known[name])
    if name.endswith((".yaml", ".yml")):
        return read_site(Path(name))
    own = folders(environ)[0]
    hint = suggest(name, list(known))
    end = "" if hint.endswith("?") else "."
    raise InputError(f"unknown site '{name}'; {hint}{end} Your own would be {own / name}.yaml")


def read_site(path: Path) -> Site:
    """The site of a profile. Raises ``InputError`` in one line that names the file, the key and what it takes."""
    from hpcbench.config.resolve import read_yaml

    values = read_yaml(path)
    values.setdefault("name", path.stem)
    missing = [name for name in ("title", "scheduler", "launcher") if name not in values]
    if missing:
        raise InputError(f"{path}: lacks '{missing[0]}'; a profile has name, title, scheduler and launcher")
    values["node"] = typed(Node, values.get("node") or {}, f"{path}: node.")
    return typed(Site, values, f"{path}: ")


T = typing.TypeVar("T")


def typed(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """A dataclass from the values of a file. Raises ``InputError`` for an unknown key or a value of another type."""
    hints = typing.get_type_hints(kind)
    if not isinstance(values, Mapping):
        raise InputError(f"{where.rstrip('. ')} must hold keys and values, not {values!r}")
    for key, value in values.items():
        if key not in hints:
            raise InputError(f"{where}unknown key '{key}'; {suggest(str(key), list(hints))}")
        if not fits(value, hints[key]):
            raise InputError(f"{where}{key} ({value!r}) must be {words_of(hints[key])}")
    made = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return kind(**made)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of a YAML file is one of the type ``hint``."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in inner
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return isinstance(value, hint)


def words_of(hint: Any) -> str:
    """What a field takes, in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(words_of(each) for each in inner if each is not type(None))
    if origin is tuple:
        return "a list of texts"
    if dataclasses.is_dataclass(hint) or origin is not None:
        return "a mapping of names to texts"
    return {int: "a whole number of at least 0", str: "a text (put it in quotes)", bool: "true or false"}[hint]
