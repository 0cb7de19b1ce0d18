"""What a site is to a job: its scheduler, launcher and nodes, and what it expects in a script.

A profile is a YAML file with the fields of ``Site``. It says how to submit. The nodes are described in the file of the
machine that it names (``hpcbench.batch.machine``) or, if there is no such file, in ``node``, with the fields of
``Node``. Profiles of the suite are in ``profiles/``, made from the sites' public pages; a user's own are in the folder
that ``HPCBENCH_SITES`` names, or in ``~/.config/hpcbench/sites``, and come first. Packages that register themselves in
``hpcbench.machines`` have such a folder, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from hpcbench import plugins
from hpcbench.batch.machine import MACHINES, Machine, find_machine, the_file, titles_of, yaml_files
from hpcbench.batch.shell_quoting import check_text, check_variables, time_s
from hpcbench.config.bounds import within
from hpcbench.config.read_dataclass import from_values
from hpcbench.config.read_yaml import Tree, read_yaml
from hpcbench.config.typed_values import typed
from hpcbench.config.user_files import user_file, user_folder
from hpcbench.suggest import suggest_by_title
from staging.bounds import shown
from staging.errors import InputError

OTHER_CLUSTER = re.compile(r"--clusters?(?:[= ]|$)|-M")
"""Slurm's options for a cluster other than that of the login node."""
LauncherName = Literal["srun", "pals", "mpich", "openmpi", "jsrun", "flux"]
PROFILES = Path(__file__).parent / "profiles"
OWN_SITES = "HPCBENCH_SITES"
"""The environment variable that names the folder of a user's own profiles."""
SCHEDULERS = ("slurm", "pbs", "lsf", "flux", "local")
"""The schedulers of the suite; plug-ins provide others."""


@dataclass(frozen=True)
class Node:
    """A compute node as a job asks for it; ``None`` if a profile does not say."""

    cores: int | None = field(default=None, metadata=within(1, 10**6))
    """Physical cores that a job may use."""
    threads_per_core: int = field(default=1, metadata=within(1, 64))
    """How many the scheduler counts for each core."""
    gpus: int = field(default=0, metadata=within(0, 1024))
    """Accelerators, as programs count them (an AMD MI250X is two)."""
    gpu: str = ""
    """Their model."""
    memory_gib: int | None = field(default=None, metadata=within(1, 10**7))


@dataclass(frozen=True)
class Site:
    """A machine, or a part of one with nodes of one kind."""

    name: str
    title: str
    scheduler: str
    launcher: LauncherName
    node: Node = field(default_factory=Node)
    machine: Machine | None = None
    """Facts of the machine, from which ``node`` is made; a profile names its file."""
    pages: tuple[str, ...] = ()
    """Addresses of the public pages that the profile was made from."""
    checked: str = ""
    """Date on which they were read."""
    local_path: str = "/tmp"  # noqa: S108 - a place that every node has
    """Node-local folder; may name variables of the job, as in ``$TMPDIR``."""
    account_required: bool = False
    queue: str = ""
    """Partition or queue of a job that names none."""
    qos: str = ""
    constraint: str = ""
    """Slurm's ``--constraint``, or what PBS takes besides the numbers in ``select``."""
    max_time: str = ""
    """Longest time of a job in the profile's queue, HH:MM:SS."""
    most_jobs: int | None = field(default=None, metadata=within(1, 10**6))
    """Jobs of a study in the profile's queue at once, unless ``--jobs`` says otherwise; absent: all of them."""
    whole_nodes: bool = False
    """Whether jobs always have their nodes to themselves, so that they need not request cores, memory and GPUs."""
    gpu_request: Literal["gpus-per-node", "gpus-per-task", "gres", "none"] = "gpus-per-node"
    """How to request GPUs from Slurm."""
    gpu_mode: Literal["shared", "exclusive_process"] = "shared"
    """LSF's mode of GPUs."""
    gpu_bind: str = ""
    """The launcher's word for which GPUs a rank sees or is close to; empty: all of the node."""
    cpu_bind: str = ""
    """The launcher's word for binding cores, if it is not one block of cores for each rank.

    A list or a mask (with a colon) is for one rank on each GPU, and is not used for another number of ranks.
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
        """Raise ``InputError`` for an unknown scheduler, and for a value that a script cannot hold."""
        schedulers = [*SCHEDULERS, *plugins.names(plugins.SCHEDULERS)]
        if self.scheduler not in schedulers:
            raise InputError(
                f"site {self.name}: scheduler ({shown(self.scheduler)}) must be one of {', '.join(schedulers)}"
            )
        for text in (self.queue, self.qos, self.constraint, self.gpu_bind, self.cpu_bind, self.mpi):
            check_text(f"site {self.name}", text)
        for directive in self.directives:
            check_text(f"site {self.name}: directives", directive, spaces=True)
            if self.scheduler == "slurm" and OTHER_CLUSTER.match(directive):
                raise InputError(
                    f"site {self.name}: directives ({directive}) would submit jobs to a cluster where squeue "
                    "and scancel do not look; leave it out, and set SLURM_CLUSTERS to that cluster, which all read"
                )
        check_variables(f"site {self.name}: local_path", self.local_path)
        if self.max_time:
            time_s(f"site {self.name}: max_time", self.max_time)

    def is_own_queue(self, queue: str) -> bool:
        """Whether a job that names ``queue``, or none, is in the profile's queue, for which its limits hold."""
        return queue in ("", self.queue)

    def most_jobs_in(self, queue: str) -> int | None:
        """The most jobs of a study at once in ``queue``; ``None``: no limit that the profile knows."""
        return self.most_jobs if self.is_own_queue(queue) else None


def folders(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The folders of profiles: the user's own, which hides others of the same name, those of packages, the suite's.

    A package that cannot be found is left out; ``check_packages`` says so. A user without a home has no own folder.
    """
    environ = os.environ if environ is None else environ
    own = user_folder(OWN_SITES, "sites", environ)
    packages = []
    for name in plugins.names(plugins.MACHINES):
        with suppress(InputError):
            packages.append(package_folder(name))
    return [*([] if own is None else [own]), *packages, PROFILES]


def package_folder(name: str) -> Path:
    """The folder of a package that registers itself as ``name``. Raises ``InputError`` if it cannot be found."""
    point = plugins.find(plugins.MACHINES, name)
    if point is None:
        raise InputError(f"no package registers itself as '{shown(name)}' in {plugins.MACHINES}; install it")
    return plugins.package_folder(point)


def check_packages() -> None:
    """Raise ``InputError`` for a package with profiles or machines that cannot be found."""
    for name in plugins.names(plugins.MACHINES):
        package_folder(name)


def known_sites(environ: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Profiles by name; the user's own hide those of the suite. Raises ``InputError`` for two of the same name."""
    profile_folders = folders(environ)
    return {name: the_file(name, "site", profile_folders) for name in yaml_files(profile_folders)}


def find_site(name: str, environ: Mapping[str, str] | None = None) -> Site:
    """The site called ``name``, or that of the profile file ``name``. Raises ``InputError`` for none or a bad one."""
    profile_folders = folders(environ)
    known = yaml_files(profile_folders)
    if name in known:
        return read_site(the_file(name, "site", profile_folders), environ)
    if name.endswith((".yaml", ".yml")):
        return read_site(Path(name), environ)
    check_packages()
    hint = suggest_by_title(name, titles_of(known))
    end = "" if hint.endswith("?") else "."
    own = user_file(OWN_SITES, "sites", f"{name}.yaml", os.environ if environ is None else environ)
    raise InputError(f"unknown site '{name}'; {hint}{end} Your own would be {own}")


def read_site(path: Path, environ: Mapping[str, str] | None = None) -> Site:
    """The site of a profile. Raises ``InputError`` in one line that names the file, the key and what it takes."""
    values = read_yaml(path)
    values.setdefault("name", path.stem)
    missing = [name for name in ("title", "scheduler", "launcher") if name not in values]
    if missing:
        raise InputError(f"{path}: lacks '{missing[0]}'; a profile has name, title, scheduler and launcher")
    machine = machine_of(values, path, environ)
    site = from_values(Site, values, f"{path}: ")
    return site if machine is None else replace(site, machine=machine, node=node_of(machine))


def machine_of(values: Tree, path: Path, environ: Mapping[str, str] | None) -> Machine | None:
    """Take the machine that a profile names out of its values; ``None`` if it names none."""
    name = values.pop("machine", None)
    if name is None:
        return None
    if "node" in values:
        raise InputError(f"{path}: has machine and node; leave out node, which the machine's file describes")
    return find_machine(typed(name, str, f"{path}: machine"), machine_folders(environ))


def machine_folders(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Where the files of machines are, the user's own first."""
    *others, _ = folders(environ)
    return [*(folder / "machines" for folder in others), MACHINES]


def node_of(machine: Machine) -> Node:
    """The nodes of a machine as a job asks for them."""
    return Node(
        machine.cores, machine.threads_per_core or 1, machine.accelerators or 0, machine.accelerator or "",
        machine.memory_gib,
    )  # fmt: skip
