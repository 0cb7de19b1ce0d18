"""What a batch job requests, complete and checked: a function of the user's request and of the site."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.batch.refusals import refuse_unused
from hpcbench.batch.shell_quoting import check_name, check_text, check_variables, clock, time_s
from hpcbench.batch.site import Site
from staging.cores import cores_allowed
from staging.errors import InputError
from staging.units import counted


@dataclass(frozen=True)
class Job:
    """One batch job: ``nodes`` x ``ranks_per_node`` processes of ``command``, and what each of them gets.

    All texts are safe in a script: those that a scheduler reads unquoted have been checked.
    """

    name: str
    mark: str
    """Its study and run, and a number that no other submission has; the scheduler keeps this text."""
    title: str
    """One line for people, at the top of the script."""
    folder: Path
    """The run folder, absolute, with the job's script, record and log."""
    work_dir: Path
    """Where the command runs, absolute, so that relative paths mean what they mean to the submitter."""
    command: tuple[str, ...]
    """What every rank runs: the words before ``train`` or ``doctor``."""
    arguments: tuple[str, ...]
    """Arguments of ``train``, after the run folder."""
    nodes: int
    ranks_per_node: int
    cores_per_rank: int
    """Physical ones."""
    gpus_per_rank: int
    memory_gib: int | None
    time_s: int
    account: str
    queue: str
    qos: str
    constraint: str
    reservation: str
    module_paths: tuple[str, ...]
    modules: tuple[str, ...]
    environment: Mapping[str, str]
    image: str
    local_path: str
    """Folder on every node; the shell replaces variables in it."""
    stages: bool
    """Whether the dataset is staged to ``local_path``."""
    warn_s: int
    attempts: int
    bring_environment: bool = False
    """Whether the ranks run from a copy of the Python environment below ``local_path``'s folder."""
    simulated_nodes: int | None = None
    """Number of nodes that the ranks of one node simulate."""
    local_gib: float = 0.0
    """What must be free at ``local_path`` on every node when the job starts."""
    packed: PackedRuns | None = None
    """Runs that the job makes side by side. Its one process starts them, and ``folder`` is then not a run folder."""

    @property
    def ranks(self) -> int:
        """All processes."""
        return self.nodes * self.ranks_per_node

    @property
    def gpus_per_node(self) -> int:
        """Accelerators requested on each node."""
        return self.ranks_per_node * self.gpus_per_rank

    @property
    def cores_per_node(self) -> int:
        """Physical cores requested on each node."""
        return self.ranks_per_node * self.cores_per_rank

    @property
    def node_hours(self) -> float:
        """Node-hours that one attempt costs at most."""
        return self.nodes * self.time_s / 3600


def make_job(
    site: Site,
    request: JobRequest,
    folder: Path,
    command: tuple[str, ...],
    arguments: tuple[str, ...],
    title: str,
    stages: bool,
) -> Job:
    """The job of a request on a site. Raises ``InputError`` in one line for what the site cannot give."""
    ranks = ranks_per_node(site, request)
    gpus = gpus_per_rank(site, request, ranks)
    cores = cores_per_rank(site, request, ranks)
    if not request.account and site.account_required:
        raise InputError(f"site {site.name} charges every job to a project; name yours with --account")
    refuse_unused(site, request)
    for option in ("account", "queue", "qos", "constraint", "reservation"):
        check_text(f"--{option}", getattr(request, option))
    if request.local_path and not request.local_path.startswith(("/", "$")):
        raise InputError(
            f"--local-path ({request.local_path!r}) must begin with / or $, since every node would take it as a folder "
            "of the directory that the job runs in; give the whole path"
        )
    for name in request.environment:
        check_name("--env", name)
    for value in request.environment.values():
        check_variables("--env", value)
    if request.image and not site.container:
        raise InputError(
            f"site {site.name} does not say how containers run; add 'container: apptainer exec {{image}}' to a profile "
            "of your own, or leave out --image"
        )
    if request.bring_environment and (request.image or "{" in (request.local_path or site.local_path)):
        why = "an --image brings its own" if request.image else "it needs a --local-path without fields in braces"
        raise InputError(f"--bring-environment: {why}; leave one of them out")
    at_least("--warn-s", request.warn_s, 0)
    at_least("--attempts", request.attempts, 1)
    seconds = job_time_s(site, request)
    return Job(
        name="hpcbench", mark=new_mark(folder), title=title, folder=folder.absolute(), work_dir=Path.cwd(),
        command=command,
        arguments=arguments, nodes=at_least("--nodes", request.nodes, 1), ranks_per_node=ranks, cores_per_rank=cores,
        gpus_per_rank=gpus, memory_gib=memory_gib(site, request), time_s=seconds, account=request.account,
        queue=request.queue or site.queue, qos=request.qos or site.qos,
        constraint=request.constraint or site.constraint,
        reservation=request.reservation, module_paths=site.module_paths, modules=(*site.modules, *request.modules),
        environment={**site.environment, **request.environment}, image=request.image,
        local_path=check_variables("--local-path", request.local_path or site.local_path), stages=stages,
        warn_s=request.warn_s, attempts=request.attempts, bring_environment=request.bring_environment,
    )  # fmt: skip


def new_mark(folder: Path) -> str:
    """Such as ``hpcbench:cosmoflow-strong/n0002-r1:1f9c22ab``: study and run of the folder, and a random number."""
    parts = folder.absolute().parts
    study = parts[-3] if parts[-2:-1] in (("runs",), ("jobs",)) and len(parts) > 3 else parts[-2]
    name = re.sub(r"[^A-Za-z0-9._/-]", "_", f"{study}/{folder.name}")
    return f"hpcbench:{name[-80:]}:{secrets.token_hex(4)}"


def ranks_per_node(site: Site, request: JobRequest) -> int:
    """The number of ranks asked for; by default one for each accelerator, or one on a node without any."""
    asked = request.ranks_per_node
    return site.node.gpus or 1 if asked is None else at_least("--ranks-per-node", asked, 1)


def gpus_per_rank(site: Site, request: JobRequest, ranks: int) -> int:
    """The number asked for; by default one each, or none if the node has none. Raises ``InputError`` for too many."""
    gpus = site.node.gpus
    if request.gpus_per_rank is None:
        if gpus and ranks > gpus:
            raise InputError(
                f"--ranks-per-node ({ranks}) is more than the {counted(gpus, 'GPU')} of a node of {site.name}; lower "
                "it, or give --gpus-per-rank 0 to train on its processors"
            )
        return 1 if gpus else 0
    asked = at_least("--gpus-per-rank", request.gpus_per_rank, 0)
    known = site.node.cores is not None
    if asked * ranks > gpus and (known or gpus):
        raise InputError(
            f"--gpus-per-rank ({asked}) for {counted(ranks, 'rank')} is more than the {counted(gpus, 'GPU')} of a node "
            f"of {site.name}; lower it or --ranks-per-node"
        )
    return asked


def cores_per_rank(site: Site, request: JobRequest, ranks: int) -> int:
    """The number asked for; by default an equal share of the node's cores. Raises ``InputError`` for too many."""
    cores = len(cores_allowed()) if site.scheduler == "local" else site.node.cores
    if request.cores_per_rank is None:
        if cores is None:
            raise InputError(f"site {site.name} does not know the cores of its nodes; give --cores-per-rank")
        if ranks > cores:
            raise InputError(
                f"--ranks-per-node ({ranks}) is more than the {counted(cores, 'core')} of a node of {site.name}; lower "
                "it"
            )
        return cores // ranks
    asked = at_least("--cores-per-rank", request.cores_per_rank, 1)
    if cores is not None and asked * ranks > cores:
        raise InputError(
            f"--cores-per-rank ({asked}) for {counted(ranks, 'rank')} is more than the {counted(cores, 'core')} of a "
            f"node of {site.name}; lower it or --ranks-per-node"
        )
    return asked


def memory_gib(site: Site, request: JobRequest) -> int | None:
    """The memory asked for on a node, in GiB; ``None`` by default. Raises ``InputError`` for more than a node has."""
    if request.memory_gib is None:
        return None
    most = site.node.memory_gib
    if most is not None and request.memory_gib > most:
        raise InputError(
            f"--memory-gib ({request.memory_gib}) is more than the {most} GiB of a node of {site.name}; lower it"
        )
    return at_least("--memory-gib", request.memory_gib, 1)


def job_time_s(site: Site, request: JobRequest) -> int:
    """The time limit in seconds. Raises ``InputError`` if it exceeds the site's, or if the warning leaves no time."""
    seconds = time_s("--time", request.time)
    if site.max_time and site.is_own_queue(request.queue) and seconds > time_s("max_time", site.max_time):
        raise InputError(
            f"--time ({request.time}) is more than the {site.max_time} of {site.name}; lower it, or name another "
            "--queue"
        )
    if seconds <= request.warn_s:
        raise InputError(
            f"--time ({clock(seconds)}) must be longer than --warn-s ({request.warn_s} s), when the job stops; raise it"
        )
    return seconds


def at_least(option: str, value: int, bound: int) -> int:
    """``value``. Raises ``InputError`` if it is below ``bound``."""
    if value < bound:
        raise InputError(f"{option} ({value}) must be at least {bound}")
    return value
