"""Inspect a machine before a run: versions, devices, MPI, ranks, cores, memory and storage."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil

from hpcbench import DISTRIBUTION, __version__
from hpcbench.batch.schedulers import usable_schedulers
from hpcbench.data.dali_samples import has_dali
from hpcbench.measure.diagnosis import Diagnosis, Need, Row, State, gib
from hpcbench.measure.import_check import OTHER_MODULES, ChildPython, ImportChecks, import_problems
from hpcbench.measure.memory import memory_limit_bytes
from hpcbench.measure.system import filesystem, operating_system, processor
from hpcbench.measure.torch_check import TorchAnswer, torch_answer
from hpcbench.results.units import counted
from staging.cores import cores_allowed
from staging.errors import InputError
from staging.storage.shared_memory import SHARED_MEMORY, left_over

DISTRIBUTIONS = {
    "lightning_fabric": "lightning-fabric",
    "lightning.fabric": "lightning",
    "mlperf_logging": "mlperf-logging",
}
LOCAL_FOLDERS = ("/tmp", "/dev/shm", "$TMPDIR", "$SLURM_TMPDIR", "$PBS_JOBFS", "$LOCAL_SCRATCH")  # noqa: S108
MPI_PROGRAM = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0])
"""


def diagnose(
    environ: Mapping[str, str],
    checks: ImportChecks,
    run_dir: Path,
    data_root: Path | None = None,
    ranks: int | None = None,
) -> Diagnosis:
    """Check everything, while the processes of ``checks`` import packages.

    ``ranks`` is the number that the launcher was asked to start, compared with what is seen.
    """
    local = {"Processor": cores(environ), "Memory": memory(), "Storage": storage(environ, run_dir, data_root)}
    world = [*launch(environ, ranks), *schedulers(environ)]
    problems = import_problems(*checks.others.answer(), OTHER_MODULES)
    world = [*mpi_library(ChildPython(MPI_PROGRAM)), *world]
    torch = torch_answer(checks.torch)
    software = versions(torch.problems | problems, torch.version)
    works = all(row.state != "broken" for row in software)
    sections = {
        "Software": software,
        "Processor": local["Processor"],
        "Accelerator and precision": torch.devices if works else [],
        "Memory": local["Memory"],
        "MPI and ranks": world,
        "Storage": local["Storage"],
    }
    return Diagnosis(sections, needs(works, torch, world))


def versions(problems: Mapping[str, str], torch_version: str) -> list[Row]:
    """The packages that a run imports, each with its version or why it cannot be imported."""
    rows = [Row(DISTRIBUTION, __version__), Row("Python", sys.version.split()[0])]
    for module, problem in problems.items():
        name = DISTRIBUTIONS.get(module, module)
        if problem:
            rows.append(Row(name, f"cannot be imported ({problem})", "broken"))
        else:
            rows.append(Row(name, torch_version if module == "torch" else metadata.version(name)))
    rows.append(Row("operating system", operating_system()))
    return rows


def cores(environ: Mapping[str, str]) -> list[Row]:
    """The processor, and how much of it this process may use."""
    cpu = processor()
    allowed = cores_allowed()
    rows = [
        Row("model", cpu["host_processor_model_name"]),
        Row("cores allowed", f"{len(allowed)} of {psutil.cpu_count()}"),
    ]
    if "OMP_NUM_THREADS" in environ:
        rows.append(Row("OMP_NUM_THREADS", environ["OMP_NUM_THREADS"]))
    return rows


def memory() -> list[Row]:
    """The memory of the machine, and how much the batch job or container allows."""
    total = psutil.virtual_memory()
    limit = memory_limit_bytes()
    rows = [Row("installed", gib(total.total)), Row("available now", gib(total.available))]
    left = left_over()
    in_shared = f"{left}; remove them from {SHARED_MEMORY}" if left else "nothing that killed processes left"
    return [
        *rows,
        Row("limit of the control group", gib(limit) if limit else "none"),
        Row("shared memory", in_shared, _note(left is None)),
    ]


def mpi_library(child: ChildPython) -> list[Row]:
    """Whether mpi4py finds an MPI library; ``child`` asks it, since a bad library can end the process that loads it."""
    said, problem = child.answer()
    mpiexec = find_program("mpiexec")
    return [
        Row("MPI library", f"none ({problem})" if problem else " ".join(said.split()), _note(not problem)),
        Row("mpiexec", mpiexec or "not found", _note(bool(mpiexec))),
    ]


def launch(environ: Mapping[str, str], expected: int | None) -> list[Row]:
    """The ranks that this process sees, compared with those it should see."""
    from staging.ranks.launch import detect

    try:
        here = detect(environ)
    except InputError as error:
        return [Row("ranks", str(error), "broken")]
    source = "started without a launcher" if here.source == "none" else f"from {here.source}"
    text = f"rank {here.rank} of {here.world_size} on {counted(here.nodes, 'node')}, {source}"
    if expected is not None and expected != here.world_size:
        return [Row("ranks", f"{text}, but --ranks says {expected}; the launcher's variables do not arrive", "broken")]
    share = max(1, len(cores_allowed()) // here.local_size)
    return [Row("ranks", text), Row("cores per rank, if shared", str(share))]


def schedulers(environ: Mapping[str, str]) -> list[Row]:
    """Batch schedulers whose commands are present, and the job that this process runs in."""
    known = list(usable_schedulers())
    present = [scheduler.TITLE for scheduler in known if scheduler.JOB_VARIABLE and shutil.which(scheduler.COMMAND)]
    names = [scheduler.JOB_VARIABLE for scheduler in known]
    jobs = [f"{name}={environ[name]}" for name in names if name in environ]
    return [Row("schedulers", ", ".join(present) or "none"), Row("inside job", ", ".join(jobs) or "no")]


def storage(environ: Mapping[str, str], run_dir: Path, data_root: Path | None) -> list[Row]:
    """Where runs are written, where the data are, and where they could be staged."""
    rows = [_folder_row("run folders", run_dir, needed=True)]
    if data_root is not None:
        rows.append(_data_row(data_root))
    seen = set()
    for name in LOCAL_FOLDERS:
        text = os.path.expandvars(name) if not name.startswith("$") else environ.get(name[1:], "")
        folder = Path(text)
        if text and folder.is_dir() and folder.resolve() not in seen:
            seen.add(folder.resolve())
            rows.append(_folder_row(f"node-local candidate {name}", folder, needed=False))
    return rows


def _folder_row(name: str, folder: Path, needed: bool) -> Row:
    """Whether a folder, or its nearest existing parent, can be written, and how much is free there."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Row(name, f"{folder}: cannot be written ({error.strerror})", "broken" if needed else "note")
    return Row(name, f"{folder}: {gib(shutil.disk_usage(place).free)} free on {filesystem(place) or 'a filesystem'}")


def _data_row(folder: Path) -> Row:
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        return Row("dataset", f"{folder}: cannot be read ({error.strerror})", "broken")
    listed = ", ".join(entries[:6]) + (", ..." if len(entries) > 6 else "")
    return Row("dataset", f"{folder}: holds {listed or 'nothing'}", "ok" if entries else "broken")


def needs(software_works: bool, torch: TorchAnswer, mpi: list[Row]) -> list[Need]:
    """What a user may want to do here, and what is missing for it."""
    library, mpiexec = (next(row for row in mpi if row.name == name) for name in ("MPI library", "mpiexec"))
    local = 'pip install "hpcbench-ml[local]", or load an MPI module'
    return [
        Need("train on one process", software_works, "a package that cannot be imported, see above", required=True),
        Need("hpcbench check", find_spec("mlperf_logging") is not None, "pip install mlperf-logging", required=True),
        Need("several ranks here, torchrun", software_works and torch.distributed, "a torch built with gloo"),
        Need("several ranks, mpiexec", mpiexec.state == "ok", local),
        Need("staging over MPI", library.state == "ok", local),
        Need("several nodes, srun", shutil.which("srun") is not None, "Slurm; mpiexec and torchrun do as well"),
        Need("an accelerator", software_works and torch.has_accelerator, "a device, or a torch that was built for it"),
        Need("--data.loader dali", has_dali(), 'pip install "hpcbench-ml[dali]"'),
        Need("LAMB compiled for processors", find_spec("numba") is not None, 'pip install "hpcbench-ml[fast]"'),
        Need("--train.compile", find_compiler() is not None, "a C++ compiler on PATH, such as g++"),
    ]


def find_program(name: str) -> str | None:
    """Return the path of a program on ``PATH``, or beside this Python, where pip puts programs."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def find_compiler() -> str | None:
    """Return the path of a C++ compiler, which ``torch.compile`` calls; ``None`` if there is none."""
    return next((path for name in ("g++", "clang++", "c++") if (path := shutil.which(name))), None)


def _note(fine: bool) -> State:
    return "ok" if fine else "note"
