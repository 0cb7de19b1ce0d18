"""Verdicts of the official tools on logs, folders of runs and organizations, with the notes that go with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench.mlperf.check_folder import check_runs
from hpcbench.mlperf.check_targets import Kind, Target
from hpcbench.mlperf.compliance import CheckResult, check_log
from hpcbench.mlperf.package_check import FolderCheck, OrganizationCheck, check_organization
from hpcbench.mlperf.package_notes import notes_of
from hpcbench.mlperf.rulesets import NEWEST, WITHOUT, round_around
from hpcbench.results.run_folder import RunFolder

COLUMNS: dict[Kind, tuple[str, ...]] = {
    "log": ("log", "benchmark", "division", "ruleset", "notes", "verdict"),
    "folder": (
        "organization",
        "system",
        "benchmark",
        "mode",
        "division",
        "ruleset",
        "logs",
        "bad",
        "notes",
        "verdict",
    ),
    "organization": ("organization", "round", "ruleset", "folders", "failed", "verdict"),
}
PASSES = ("pass", "common rules")
NO_RULES, NO_RUNS = "no rules", "no runs"
MOST_MESSAGES = 5
"""Most messages that are shown for each rejected log of a folder."""


@dataclass(frozen=True)
class Verdict:
    """A row of a table, and the lines below it."""

    kind: Kind
    name: str
    cells: tuple[str, ...]
    """The values for ``COLUMNS``; the last one is the verdict."""
    details: tuple[str, ...]
    assumed: bool = False
    """Whether no ruleset was named, so the newest was used."""

    @property
    def passed(self) -> bool:
        """Whether the official tools accept it."""
        return self.cells[-1] in PASSES


def verdicts_on(target: Target, ruleset: str | None, division: str | None) -> Iterator[Verdict]:
    """Yield the verdict on a target; for an organization, also one for each folder of runs.

    ``ruleset`` and ``division`` are those asked for, if any. Raises ``InputError`` as ``check_log`` does.
    """
    if target.without_runs:
        yield without_runs(target)
        return
    if ruleset is None and target.without_rules:
        yield without_rules(target)
        return
    chosen = ruleset or target.ruleset
    if target.kind == "log":
        chosen = chosen or own_ruleset(target.path)
        yield log_verdict(check_log(target.path, division, chosen or NEWEST), chosen is None)
    elif target.kind == "folder":
        yield folder_verdict(check_runs(target.path, chosen or NEWEST, division), chosen is None)
    else:
        checked = check_organization(target.path, chosen or NEWEST)
        yield from (folder_verdict(folder, chosen is None) for folder in checked.folders)
        yield organization_verdict(checked, target, chosen is None)


def without_rules(target: Target) -> Verdict:
    """The verdict on a target of the round before the official rulesets."""
    names = location_of(target.path)[1:4] if target.kind == "folder" else (label(target.path),)
    blank = ("-",) * (len(COLUMNS[target.kind]) - len(names) - 1)
    said = f"round {WITHOUT} has no official HPC ruleset; --ruleset 1.0.0 checks it by the rules of the next round"
    return Verdict(target.kind, label(target.path), (*names, *blank, NO_RULES), (said,))


def without_runs(target: Target) -> Verdict:
    """The verdict on an organization without a log, which the official tools accept."""
    blank = ("-",) * (len(COLUMNS[target.kind]) - 2)
    said = "its folder results holds no result_*.txt; add the logs, or leave the folder out"
    return Verdict(target.kind, label(target.path), (target.path.absolute().name, *blank, NO_RUNS), (said,))


def own_ruleset(log: Path) -> str | None:
    """The ruleset that the run of ``log`` followed, as its summary says."""
    folder = RunFolder(log.parent)
    return folder.read_summary().ruleset if log == folder.mllog and folder.summary.exists() else None


def log_verdict(result: CheckResult, assumed: bool) -> Verdict:
    """The verdict on a log: what the compliance checker says, and as notes what it lets pass."""
    notes = [*result.beyond_messages, *result.notes]
    said = [] if result.official == "own target" else list(result.official_messages)
    if result.official == "own target":
        said.append("the published quality is not reached, but the target that the log names is (open division)")
    if result.official == "common rules":
        said.append("the official checker does not know this benchmark; only its common rules were applied")
    word = "FAIL" if result.official == "fail" else result.official
    cells = (label(result.path), result.benchmark or "-", result.division or "-", result.ruleset, str(len(notes)), word)
    return Verdict("log", cells[0], cells, (*said, *(f"note: {note}" for note in notes)), assumed)


def folder_verdict(checked: FolderCheck, assumed: bool) -> Verdict:
    """The verdict on a folder of runs: what the package checker says, why logs are rejected, and unchecked rules."""
    notes = [*checked.notes, *(notes_of(checked) if checked.logs else [])]
    said = list(checked.faults)
    for log in checked.rejected:
        if log.crash is None:
            messages = check_log(checked.folder / log.name, None, checked.ruleset).official_messages
            said += [f"{log.name}: {message}" for message in messages[:MOST_MESSAGES]]
    if checked.reference is not None and checked.reference.passed:
        notes.append(f"convergence: {checked.reference.words}")
    counts = (str(len(checked.logs)), str(len(checked.rejected))) if checked.logs else ("-", "-")
    _, organization, system, _ = location_of(checked.folder)
    mode = "throughput" if checked.throughput else "time to train"
    cells = (
        organization, system, checked.benchmark, mode,
        "closed" if checked.closed else "open", checked.ruleset, *counts,
        str(len(notes)), "pass" if checked.passed else "FAIL",
    )  # fmt: skip
    return Verdict("folder", label(checked.folder), cells, (*said, *(f"note: {note}" for note in notes)), assumed)


def organization_verdict(checked: OrganizationCheck, target: Target, assumed: bool) -> Verdict:
    """The verdict on an organization: the package checker's verdict on the whole tree."""
    failed = sum(not folder.passed for folder in checked.folders)
    cells = (
        checked.path.absolute().name, target.round or "-", checked.ruleset, str(len(checked.folders)), str(failed),
        "pass" if checked.passed else "FAIL",
    )  # fmt: skip
    return Verdict(
        "organization", cells[0], cells, (*checked.faults, *(f"note: {note}" for note in checked.notes)), assumed
    )


def location_of(folder: Path) -> tuple[str, str, str, str]:
    """Round, organization, system and name of a folder of runs; a dash for what its path does not say."""
    parts = folder.absolute().parts
    if "results" not in parts[1:-2]:
        return "-", "-", parts[-2] if len(parts) > 2 else "-", parts[-1]
    at = len(parts) - 1 - parts[::-1].index("results")
    return round_around(folder) or "-", parts[at - 1], parts[at + 1], parts[-1]


def label(path: Path) -> str:
    """The end of a path that identifies it: a run folder, a file in its folder, or a folder of runs."""
    parts = path.absolute().parts
    if path.name == "mllog.txt":
        name = parts[-2]
    else:
        above = parts[-2:] if path.is_file() else parts[-6:] if "results" in parts[-4:-1] else parts[-2:]
        name = "/".join(part for part in above if part not in ("results", "/"))
    return name if len(name) <= 44 or path.is_dir() else "..." + name[-41:]
