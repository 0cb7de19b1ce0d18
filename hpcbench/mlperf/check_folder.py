"""Check one folder of runs, in the tree of an organization as the package checker does, or anywhere else."""

from __future__ import annotations

from pathlib import Path

from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.official_log import read_official_log
from hpcbench.mlperf.official_score import log_files
from hpcbench.mlperf.package_check import MODES, Bypass, FolderCheck, check_folder, is_closed, read_bypass


def check_runs(folder: Path, ruleset: str, division: str | None = None) -> FolderCheck:
    """Apply the package checker's rules to the logs in ``folder``.

    The benchmark is taken from the folder's name, else from its logs. The runs are throughput if the parent folder is
    ``weak``. The division is ``division``, else that of the system description if the folder lies in a tree, else that
    of the logs.
    """
    folder = folder.absolute()
    first = read_official_log(log_files(folder)[0], ruleset)
    logged = first.convergence.benchmark if first.convergence is not None else None
    benchmark = folder.name if folder.name in RUNS else str(logged or "-")
    throughput = folder.parent.name == "weak"
    closed, fault = (first.division == "closed", None)
    in_tree = folder.parent.name in MODES and folder.parents[2].name == "results"
    if division is not None:
        closed = division == "closed"
    elif in_tree:
        closed, fault = is_closed(folder.parents[3], folder.parents[1].name)
    if benchmark not in RUNS:
        named = "the logs name none" if logged is None else f"{logged} is none"
        fault = f"benchmark: {named} of {', '.join(RUNS)}"
    bypass = Bypass()
    if fault is None:
        bypass, fault = read_bypass([folder.parents[1], folder] if in_tree else [folder])
    if fault is not None:
        return FolderCheck(folder, benchmark, throughput, closed, ruleset, (), (fault,), ())
    return check_folder(folder, benchmark, throughput, closed, ruleset, bypass)
