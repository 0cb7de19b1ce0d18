"""Build a submission, from its entries to the verdict on its tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.mlperf.entries import entries_of
from hpcbench.mlperf.entry import Entry
from hpcbench.mlperf.find_logs import find_runs
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.rulesets import ROUNDS
from hpcbench.results.units import MISSING
from hpcbench.submission.findings import Finding, find_faults
from hpcbench.submission.official_checks import OfficialVerdict, check_tree
from hpcbench.submission.planned_entries import PlannedEntry
from hpcbench.submission.shipped_code import code_faults
from hpcbench.submission.submission_tree import NamedEntry, name_entries, new_tree, write_tree
from hpcbench.submission.system_facts import Facts

ROUND_OF = {ruleset: name for name, ruleset in ROUNDS.items()}
"""The round of each ruleset."""
CONTRADICTIONS = ("copies: ", "clock: ", "epochs: ")
"""Faults of an entry that come from what its logs say about themselves."""
Key = tuple[str | None, str | None, str | None]
MODES = {"strong": "time to train", "weak": "throughput"}


@dataclass(frozen=True)
class Package:
    """What was built, and the findings on it."""

    folder: Path
    ruleset: str
    division: str
    rows: Sequence[Sequence[str]]
    """System, benchmark, kind of score, runs, minutes and models per minute of each entry."""
    findings: Sequence[Finding]
    verdict: OfficialVerdict

    @property
    def submittable(self) -> bool:
        """Whether nothing is missing, and the official checkers find no error."""
        return self.verdict.passed and all(finding.note for finding in self.findings)


def build(
    organization: str, entries: Sequence[PlannedEntry], system: str | None, facts: Facts, out: Path | None
) -> Package:
    """Build the tree of an organization below ``out`` and check it.

    Raises ``InputError`` if the folder exists, the system has no name, or entries are of two divisions.
    """
    first = entries[0].first
    ruleset, division = first.summary.ruleset, str(first.record.division)
    named = name_entries(entries, organization, system, facts)
    folder = (out or Path("submissions") / ROUND_OF[ruleset]) / organization
    with new_tree(folder) as part:
        kept = write_tree(part, organization, named)
        verdict = check_tree(part, ruleset)
        findings = find_faults(named, part, ruleset, facts)
        scored = scored_entries(part, ruleset)
        rows = score_rows(scored, named)
        findings += contradictions(scored, named)
    runs = [run for entry in entries for run in entry.runs]
    findings += [Finding("code", words, note=True) for words in code_faults(runs)]
    findings += [Finding(name.place, name.words, name.remedy, note=True) for name in kept]
    return Package(folder, ruleset, division, rows, findings, verdict)


def scored_entries(folder: Path, ruleset: str) -> dict[Key, Entry]:
    """The entries of the tree in ``folder`` with their scores, read back from its logs."""
    records = read_runs(find_runs([folder / "results"]))
    for record in records:
        record.round = ROUND_OF[ruleset]
    return {(entry.first.system, entry.first.mode, entry.first.application): entry for entry in entries_of(records)}


def key_of(named_entry: NamedEntry) -> Key:
    """The key of an entry in ``scored_entries``."""
    return named_entry.system, MODES[named_entry.entry.mode], named_entry.entry.benchmark


def contradictions(scored: Mapping[Key, Entry], named: Sequence[NamedEntry]) -> list[Finding]:
    """Where logs contradict themselves or one another, which no official checker sees: none can be submitted so."""
    remedy = "give the run folders as the runs left them, each once"
    return [
        Finding(named_entry.words, fault, remedy)
        for named_entry in named if (entry := scored.get(key_of(named_entry))) is not None
        for fault in entry.faults if fault.startswith(CONTRADICTIONS)
    ]  # fmt: skip


def score_rows(scored: Mapping[Key, Entry], named: Sequence[NamedEntry]) -> list[list[str]]:
    """The score of each entry."""
    rows = []
    for named_entry in named:
        entry = scored.get(key_of(named_entry))
        whole = entry is not None and len(named_entry.entry.runs) >= named_entry.entry.needed
        minutes = entry.score_min if whole and entry is not None else None
        models = entry.models_per_min if whole and entry is not None else None
        rows.append([
            named_entry.system, named_entry.entry.benchmark, MODES[named_entry.entry.mode],
            str(len(named_entry.entry.runs)),
            MISSING if minutes is None else f"{minutes:.3f}", MISSING if models is None else f"{models:.4g}",
        ])  # fmt: skip
    return rows
