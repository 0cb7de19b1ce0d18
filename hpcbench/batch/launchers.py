"""The commands that start the ranks inside a job: words of srun, mpiexec, mpirun, jsrun and flux run.

Each rank gets a block of cores of its own. Accelerators stay visible to all ranks of a node, and each rank takes the
one with its own number, unless the site binds them (``gpu_bind``) or the launcher always divides them (jsrun, flux).
"""

from __future__ import annotations

from collections.abc import Callable

from hpcbench.batch.job import Job
from hpcbench.batch.site import Site
from staging.ranks.signals import WARNING_VARIABLE

Launcher = Callable[[Job, Site], list[str]]


def srun(job: Job, site: Site) -> list[str]:
    """Slurm's launcher; a rank that fails ends the step."""
    words = [
        "srun", f"--nodes={job.nodes}", f"--ntasks={job.ranks}", f"--ntasks-per-node={job.ranks_per_node}",
        f"--cpus-per-task={job.cores_per_rank * site.node.threads_per_core}",
        f"--cpu-bind={binding(job, site) or 'cores'}", "--kill-on-bad-exit=1",
    ]  # fmt: skip
    if site.mpi:
        words.append(f"--mpi={site.mpi}")
    if job.gpus_per_rank and site.gpu_request == "gpus-per-task":
        words.append(f"--gpus-per-task={job.gpus_per_rank}")
    if job.gpus_per_rank and site.gpu_bind:
        words.append(f"--gpu-bind={site.gpu_bind}")
    return words


def pals(job: Job, site: Site) -> list[str]:
    """``mpiexec`` of HPE's PALS, on Cray machines with PBS."""
    words = ["mpiexec", "-n", str(job.ranks), "--ppn", str(job.ranks_per_node)]
    if bound := binding(job, site):
        words += ["--cpu-bind", bound]
    else:
        words += ["--depth", str(job.cores_per_rank), "--cpu-bind", "depth"]
    if job.gpus_per_rank and site.gpu_bind:
        words += ["--gpu-bind", site.gpu_bind]
    return words


def mpich(job: Job, site: Site) -> list[str]:
    """``mpiexec`` of MPICH and Intel MPI (Hydra), which finds the nodes of PBS, LSF and Slurm by itself."""
    words = ["mpiexec", "-n", str(job.ranks)]
    if site.scheduler != "local":
        words += ["-ppn", str(job.ranks_per_node), "-bind-to", binding(job, site) or f"core:{job.cores_per_rank}"]
    return words


def openmpi(job: Job, site: Site) -> list[str]:
    """``mpirun`` of Open MPI, which passes on only the variables that it is given."""
    place = f"ppr:{job.ranks_per_node}:node:PE={job.cores_per_rank}"
    words = ["mpirun", "-np", str(job.ranks), "--map-by", place, "--bind-to", binding(job, site) or "core"]
    for name in ("PATH", "OMP_NUM_THREADS", WARNING_VARIABLE, *job.environment):
        words += ["-x", name]
    return words


def jsrun(job: Job, site: Site) -> list[str]:
    """IBM's launcher, on machines with LSF: one resource set per node, since a rank cannot reach GPUs of other sets."""
    return [
        "jsrun", "--nrs", str(job.nodes), "--rs_per_host", "1", "--tasks_per_rs", str(job.ranks_per_node),
        "--cpu_per_rs", str(job.cores_per_node), "--gpu_per_rs", str(job.gpus_per_node),
        "--bind", binding(job, site) or f"packed:{job.cores_per_rank}",
    ]  # fmt: skip


def flux(job: Job, site: Site) -> list[str]:
    """``flux run``; the Flux shell itself sets the affinity of each task, without mpibind."""
    words = [
        "flux", "run", f"--nodes={job.nodes}", f"--ntasks={job.ranks}", f"--cores-per-task={job.cores_per_rank}",
        "--setopt=mpibind=off", f"--setopt=cpu-affinity={binding(job, site) or 'per-task'}", "--setopt=exit-on-error",
    ]  # fmt: skip
    if job.gpus_per_rank:
        words += [f"--gpus-per-task={job.gpus_per_rank}", f"--setopt=gpu-affinity={site.gpu_bind or 'per-task'}"]
    return words


def binding(job: Job, site: Site) -> str:
    """The site's own word for binding cores, if it holds for this number of ranks; else empty."""
    a_list = ":" in site.cpu_bind
    return "" if a_list and job.ranks_per_node != site.node.gpus else site.cpu_bind


def srun_step(job: Job, site: Site, first_node: int) -> list[str]:
    """A step on nodes given by their place in the allocation, so that it does not wait for another step's memory."""
    return [*srun(job, site), f"--relative={first_node}"]


def jsrun_step(job: Job, site: Site, first_node: int) -> list[str]:
    """A step on whole hosts, which no other step then has."""
    whole = {"--cpu_per_rs": "ALL_CPUS"} | ({"--gpu_per_rs": "ALL_GPUS"} if job.gpus_per_rank else {})
    words = jsrun(job, site)
    return [whole.get(before, word) for before, word in zip(["", *words], words, strict=False)]


def flux_step(job: Job, site: Site, first_node: int) -> list[str]:
    """A step on whole nodes, which no other step then has."""
    return [*flux(job, site), "--exclusive"]


LAUNCHERS: dict[str, Launcher] = {
    "srun": srun, "pals": pals, "mpich": mpich, "openmpi": openmpi, "jsrun": jsrun, "flux": flux,
}  # fmt: skip

STEPS: dict[str, Callable[[Job, Site, int], list[str]]] = {"srun": srun_step, "jsrun": jsrun_step, "flux": flux_step}
"""For launchers that can divide the nodes of an allocation: the command that starts the ranks of ``job`` on nodes that
no other step has, by the number of the first node. Other launchers find the nodes by themselves, and take all of them.
"""
