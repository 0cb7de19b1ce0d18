"""Write the tree of a submission: whole, or not at all (MLPerf HPC: systems, results, benchmarks)."""

from __future__ import annotations

import getpass
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.measure.power_log import POWER
from hpcbench.submission.planned_entries import PlannedEntry
from hpcbench.submission.power_logs import copy_power, logs_of
from hpcbench.submission.scrub import Scrubber, scrubber
from hpcbench.submission.shipped_code import copy_code, read_me, requirements, settings_of
from hpcbench.submission.submitted_runs import SubmittedRun
from hpcbench.submission.system_facts import IDENTITY, Facts, checked_name, describe
from staging.errors import InputError
from staging.formats.regular import read_text

IMPLEMENTATION = "hpcbench"
PRUNED = "pruned_results"


@dataclass(frozen=True)
class NamedEntry:
    """An entry with the system that its folder is named after, and that system's description."""

    system: str
    entry: PlannedEntry
    description: dict[str, Any]

    @property
    def place(self) -> str:
        """Its folder, below that of the organization."""
        return f"results/{self.system}/{self.entry.mode}/{self.entry.benchmark}"

    @property
    def words(self) -> str:
        """The entry in words."""
        mode = "time to train" if self.entry.mode == "strong" else "throughput"
        return f"{self.system}, {self.entry.benchmark}, {mode}"


def name_entries(
    entries: Sequence[PlannedEntry], organization: str, name: str | None, facts: Facts
) -> list[NamedEntry]:
    """Entries with their systems: one name, with ``_nN`` if there are several sizes.

    Raises ``InputError`` if the system has no name; the name of a host does not count.
    """
    said = name or facts.system_name or entries[0].first.platform
    if not said:
        raise InputError("the system has no name; give one with --system NAME, or as system_name in the file of facts")
    checked_name(said, "system")
    sizes = {entry.nodes for entry in entries}
    named = []
    for entry in entries:
        system = said if len(sizes) == 1 else f"{said}_n{entry.nodes}"
        named.append(NamedEntry(system, entry, describe(entry.first, facts, organization, system, entry.nodes)))
    return named


@contextmanager
def new_tree(folder: Path) -> Iterator[Path]:
    """A folder of the same name to build in, which becomes ``folder`` at the end.

    Raises ``InputError`` if ``folder`` exists or cannot be written. A failure leaves nothing behind.
    """
    exists = InputError(f"{folder} exists; remove it, or give another --out")
    if folder.exists():
        raise exists
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".hpcbench-package-", dir=folder.parent) as temporary:
            part = Path(temporary) / folder.name
            part.mkdir(mode=0o777)
            yield part
            if folder.exists():
                raise exists
            part.rename(folder)
    except BaseException as error:
        for parent in made:
            with suppress(OSError):  # not made, or no longer empty
                parent.rmdir()
        if isinstance(error, OSError):
            what = error.strerror or error
            raise InputError(f"{folder} cannot be written ({what}); give another --out") from None
        raise


@dataclass(frozen=True)
class KeptName:
    """A name of a host or user that could not be removed from what is published."""

    place: str
    words: str
    remedy: str


def write_tree(folder: Path, organization: str, named: Sequence[NamedEntry]) -> list[KeptName]:
    """Write everything below the folder of the organization; returns the names that stay in it."""
    scrub = scrubber_of([run for named_entry in named for run in (*named_entry.entry.runs, *named_entry.entry.pruned)])
    systems = folder / "systems"
    systems.mkdir()
    for named_entry in named:
        identity = {key: value for key, value in named_entry.description.items() if key in IDENTITY}
        text = json.dumps({**scrub.value(named_entry.description), **identity}, indent=4) + "\n"
        (systems / f"{named_entry.system}.json").write_text(text, encoding="utf-8")
        write_results(folder / named_entry.place, named_entry, organization, scrub)
    kept: list[KeptName] = []
    if scrub.alike:
        words = f"{', '.join(sorted(scrub.alike))}: too short to be told from other text, and not removed"
        kept.append(KeptName("names of hosts and users", words, "search the package for them"))
    for benchmark in dict.fromkeys(named_entry.entry.benchmark for named_entry in named):
        of_benchmark = [named_entry for named_entry in named if named_entry.entry.benchmark == benchmark]
        kept += write_implementation(folder / "benchmarks" / benchmark / "implementations" / IMPLEMENTATION,
                                     of_benchmark, organization, scrub)  # fmt: skip
    return kept


def write_results(folder: Path, named: NamedEntry, organization: str, scrub: Scrubber) -> None:
    """Write the logs of an entry, with the names of its submission, and power logs if all its runs have some."""
    folder.mkdir(parents=True)
    identity = {
        "submission_org": organization, "submission_platform": named.system,
        "submission_status": str(named.description.get("status", "")),
    }  # fmt: skip
    for number, run in enumerate(named.entry.runs):
        write_log(folder / f"result_{number}.txt", run, identity, scrub)
        if all(logs_of(other.folder.path / POWER) for other in named.entry.runs):
            copy_power(run.folder.path / POWER, folder / "power" / f"result_{number}", scrub)
    for number, run in enumerate(named.entry.pruned):
        (folder / PRUNED).mkdir(exist_ok=True)
        write_log(folder / PRUNED / f"result_{number}.txt", run, identity, scrub)


def write_log(path: Path, run: SubmittedRun, identity: dict[str, str], scrub: Scrubber) -> None:
    """Write a run's official log, without names of people and places."""
    text = read_text(run.folder.mllog, encoding="utf-8", errors="replace")
    path.write_text(scrub.log(text, identity, run.folder.mllog), encoding="utf-8")


def write_implementation(
    folder: Path, named: Sequence[NamedEntry], organization: str, scrub: Scrubber
) -> list[KeptName]:  # fmt: skip
    """Write the code, the settings of each entry, and how to run it; returns the names that stay in the settings."""
    import yaml

    (folder / "settings").mkdir(parents=True)
    application = named[0].entry.first.summary.application
    listed, kept = [], []
    for named_entry in named:
        name = f"{named_entry.system}-{named_entry.entry.mode}.yaml"
        settings = settings_of(named_entry.entry.first, scrub, organization, named_entry.system)
        (folder / "settings" / name).write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        listed.append((name, named_entry.entry))
        chosen = {group: values for group, values in settings.items() if group != "submission"}
        kept += [KeptName(f"settings/{name}", f"{key} ({word}) is the name of a host or user too, and stays, because a "
                          "single word may be a choice", "change it in the file if it names the host or user")
                 for key, word in scrub.kept(chosen).items()]  # fmt: skip
    (folder / "README.md").write_text(read_me(listed, application), encoding="utf-8")
    (folder / "requirements.txt").write_text(
        scrub.text(requirements(named[0].entry.first.environment)), encoding="utf-8"
    )
    copy_code(folder / "code", application)
    return kept


def scrubber_of(runs: Sequence[SubmittedRun]) -> Scrubber:
    """A scrubber for the hosts and users that the folders of runs reveal, and for those of this machine."""
    hosts, texts = {platform.node()}, []
    for run in runs:
        hosts.add(str(run.environment.get("host", "")))
        folder = run.folder.path
        hosts |= {str(hold.get("host", "")) for hold in map(read_hold, sorted((folder / "holds").glob("*.json")))}
        for path in (run.folder.config, run.folder.environment, run.folder.mllog, folder / "job.sh"):
            if path.exists():
                texts.append(read_text(path, encoding="utf-8", errors="replace"))
    return scrubber(texts, hosts, {user_here()})


def read_hold(path: Path) -> dict[str, Any]:
    """What an attempt of a job recorded about itself; empty if it cannot be read."""
    try:
        hold = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return hold if isinstance(hold, dict) else {}


def user_here() -> str:
    """Name of the current user; empty if the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return os.environ.get("USER", "")
