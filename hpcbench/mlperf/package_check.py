"""The rules of the official package checker, for a folder of runs and for the tree of an organization.

The verdict is that of ``package_checker`` (mlperf_logging 4.1.68), which always ends with exit code 0, writes
``scaling.json`` to the folders, and stops at the first crash. This module writes nothing and continues.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.official_checker import quiet_logging
from hpcbench.mlperf.official_convergence import ReferenceTest, reference_test
from hpcbench.mlperf.official_log import OfficialLog, read_official_log, words_of
from hpcbench.mlperf.official_score import log_files
from hpcbench.results.units import counted

MODES = ("strong", "weak")
PARAMETERS = "package_checker_params"


@dataclass(frozen=True)
class FolderCheck:
    """What the package checker says about a folder of runs."""

    folder: Path
    benchmark: str
    throughput: bool
    closed: bool
    """Only in the closed division are seeds and reference points checked."""
    ruleset: str
    logs: tuple[OfficialLog, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    reference: ReferenceTest | None = None

    @property
    def passed(self) -> bool:
        """Whether the folder has no fault."""
        return not self.faults

    @property
    def rejected(self) -> tuple[OfficialLog, ...]:
        """Logs that the compliance checker does not accept."""
        return tuple(log for log in self.logs if not log.accepted)


@dataclass(frozen=True)
class OrganizationCheck:
    """What the package checker says about the tree of an organization."""

    path: Path
    ruleset: str
    folders: tuple[FolderCheck, ...]
    faults: tuple[str, ...]
    """Faults outside the folders of runs: in the tree, and in system descriptions."""
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the checker finds no error in the whole tree."""
        return not self.faults and all(folder.passed for folder in self.folders)


@dataclass(frozen=True)
class Bypass:
    """Tests that a file ``package_checker_params``, in the folder of a system or of runs, switches off."""

    seeds: bool = False
    convergence: bool = False

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Bypass:
        """Read the files in ``folders``. The checker recognizes a word only if no line end follows it.

        Raises ``OSError`` and ``UnicodeDecodeError`` for a file that cannot be read, where the checker crashes.
        """
        lines = [line for folder in folders if (folder / PARAMETERS).is_file()
                 for line in (folder / PARAMETERS).read_text().splitlines(keepends=True)]  # fmt: skip
        return cls("seed-checker-bypass" in lines, "rcp-bypass" in lines)


def read_bypass(folders: Sequence[Path]) -> tuple[Bypass, str | None]:
    """The tests that the files in ``folders`` switch off, or none and why the checker crashes on these files."""
    try:
        return Bypass.of(folders), None
    except (OSError, ValueError) as error:
        return Bypass(), f"crash: {PARAMETERS} in {' or '.join(folder.name for folder in folders)}: {words_of(error)}"


def check_folder(
    folder: Path, benchmark: str, throughput: bool, closed: bool, ruleset: str, bypass: Bypass | None = None
) -> FolderCheck:
    """Apply the rules to the logs ``result_*.txt`` in ``folder``. ``benchmark`` must be one with a count of runs."""
    bypass = bypass or Bypass()
    logs = [read_official_log(path, ruleset) for path in log_files(folder)]
    faults, notes = check_count(len(logs), benchmark, throughput)
    more, said = check_logs(folder, logs)
    faults += more
    notes += said
    reference = None
    if closed and not bypass.seeds:
        faults += check_seeds(logs)
    if closed:
        reference = reference_test(logs, ruleset, bypass.convergence)
        if not reference.passed:
            faults.append(f"convergence: {reference.words}")
    notes += ["seeds: their test is bypassed"] if closed and bypass.seeds else []
    return FolderCheck(
        folder, benchmark, throughput, closed, ruleset, tuple(logs), tuple(faults), tuple(notes), reference
    )


def check_count(number: int, benchmark: str, throughput: bool) -> tuple[list[str], list[str]]:
    """Check the number of logs: time to train takes exactly the rules' number, throughput at least that many."""
    needed = RUNS[benchmark]
    if throughput and number < needed:
        return [f"count: {counted(number, 'instance')}, at least {needed} needed"], []
    if not throughput and number != needed:
        return [f"count: {counted(number, 'run')}, exactly {needed} needed"], []
    return [], []


def check_logs(folder: Path, logs: Sequence[OfficialLog]) -> tuple[list[str], list[str]]:
    """Check the logs: one log, or the power logs of one run, may be bad."""
    crashes = [f"crash: {log.name}: {log.crash}" for log in logs if log.crash is not None]
    bad = {Path(log.name).stem for log in logs if not log.accepted}
    notes = []
    if (folder / "power").exists():
        try:
            bad |= bad_power(folder, logs)
        except Exception as error:
            crashes.append(f"crash: power: {words_of(error)}")
    names = ", ".join(sorted(bad))
    if len(bad) == 1 and not crashes:
        notes.append(f"logs: {names} is not accepted; one may")
    faults = [f"logs: {len(bad)} are not accepted, one may: {names}"] if len(bad) > 1 else []
    return crashes + faults, notes


def bad_power(folder: Path, logs: Sequence[OfficialLog]) -> set[str]:
    """Names of runs whose power logs the power checker rejects."""
    from mlperf_logging.package_checker.power_checker import PowerChecker

    with quiet_logging():
        returned = PowerChecker("3.0.0").check_power(str(folder / "power"), sorted(log.name for log in logs))
    return set(returned[1])


def check_seeds(logs: Sequence[OfficialLog]) -> list[str]:
    """Check that each log has a seed, and that no two have the same one from the same line of the same file."""
    faults: list[str] = []
    unreadable = [log.name for log in logs if log.seeds_problem is not None]
    without = [log.name for log in logs if log.seeds_problem is None and not log.seeds]
    if unreadable:
        why = next(log.seeds_problem for log in logs if log.seeds_problem is not None)
        faults.append(f"seeds: {counted(len(unreadable), 'log')} whose seeds cannot be read: {unreadable[0]}: {why}")
    if without:
        names = "none has one" if len(without) == len(logs) else f"without one: {', '.join(sorted(without)[:5])}"
        faults.append(f"seeds: {counted(len(without), 'log')}, {names}")
    first: dict[tuple[object, object, int], str] = {}
    try:
        for log in sorted(logs, key=lambda log: log.name):
            for seed in log.seeds:
                other = first.setdefault(seed, log.name)
                if other != log.name or log.seeds.count(seed) > 1:
                    faults.append(f"seeds: {log.name} has seed {seed[2]} of {other}")
                    break
    except TypeError as error:  # a place that is a list
        faults.append(f"crash: seeds: {words_of(error)}")
    return faults


def check_organization(organization: Path, ruleset: str) -> OrganizationCheck:
    """Check the whole tree of an organization: its system descriptions, and each folder of runs."""
    faults = check_systems(organization, ruleset)
    notes: list[str] = []
    folders: list[FolderCheck] = []
    results = organization / "results"
    if not results.is_dir():
        faults.append("crash: there is no folder results")
    for system in sub_folders(results):
        for mode in sub_folders(system):
            for folder in sub_folders(mode):
                if mode.name not in MODES:
                    faults.append(f"crash: results/{system.name}/{mode.name} is neither strong nor weak")
                    continue
                check, fault = check_in_tree(organization, folder, ruleset)
                if fault is not None:
                    (notes if fault.startswith("skipped") else faults).append(fault)
                if check is not None:
                    folders.append(check)
    return OrganizationCheck(organization, ruleset, tuple(folders), tuple(dict.fromkeys(faults)), tuple(notes))


def check_in_tree(organization: Path, folder: Path, ruleset: str) -> tuple[FolderCheck | None, str | None]:
    """Check a folder of runs by its place in the tree, or return what prevents the check."""
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    system = folder.parents[1]
    closed, fault = is_closed(organization, system.name)
    if fault is not None:
        return None, fault
    if folder.name not in get_allowed_benchmarks("hpc", ruleset):
        return None, f"skipped: {folder.relative_to(organization)} is no benchmark of ruleset {ruleset}"
    bypass, fault = read_bypass([system, folder])
    if fault is not None:
        return None, fault
    return check_folder(folder, folder.name, folder.parent.name == "weak", closed, ruleset, bypass), None


def sub_folders(folder: Path) -> list[Path]:
    """Folders in a folder, sorted by name; empty if it does not exist."""
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def is_closed(organization: Path, system: str) -> tuple[bool, str | None]:
    """Whether the description of a system says ``closed``, or why the checker crashes on it."""
    import json

    path = organization / "systems" / f"{system}.json"
    try:
        with path.open() as file:
            return json.load(file)["division"] == "closed", None
    except Exception as error:
        return False, f"crash: systems/{path.name}: {words_of(error).replace(f'{organization}{os.sep}', '')}"


def check_systems(organization: Path, ruleset: str) -> list[str]:
    """What the official checker of system descriptions says about each file: the fields that are missing."""
    from mlperf_logging.system_desc_checker import system_desc_checker

    faults = []
    for path in sorted((organization / "systems").glob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            with quiet_logging() as said:
                valid = system_desc_checker.check_system_desc(str(path), "hpc", ruleset)[0]
        except Exception as error:
            faults.append(f"crash: systems/{path.name}: {words_of(error)}")
            continue
        if not valid:
            reasons = "; ".join(said).rpartition(" : ")[2].strip("[]").replace("'", "")
            faults.append(f"systems: {path.name}: {reasons}")
    return faults
