"""Code and settings of a submission, which reproduce its runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpcbench import DISTRIBUTION, __version__, plugins
from hpcbench.application import find_application
from hpcbench.measure.environment import source
from hpcbench.results.units import counted
from hpcbench.submission.planned_entries import PlannedEntry
from hpcbench.submission.scrub import Scrubber
from hpcbench.submission.submitted_runs import SubmittedRun, group_of

LEFT_OUT = re.compile(r"__pycache__|\..*|.* .*|.*\.(pyc|so|egg-info)")
"""Names that a repository of submissions does not accept, and files that are generated from others."""
DATASET = "dataset"
"""The placeholder for the folder of the dataset in settings."""


def packages(application: str) -> list[str]:
    """The Python packages that a run of an application needs from this suite and from the application's author."""
    package = find_application(application).package.partition(".")[0]
    return sorted({"hpcbench", "staging", package})


def copy_code(folder: Path, application: str) -> None:
    """Copy the packages into ``folder``, and register their applications there as an installation does."""
    names = packages(application)
    for name in names:
        spec = find_spec(name)
        for place in (spec.submodule_search_locations or []) if spec is not None else []:
            shutil.copytree(place, folder / name, ignore=ignored, dirs_exist_ok=True)

    metadata = folder / f"{DISTRIBUTION.replace('-', '_')}.dist-info"
    metadata.mkdir()
    points = [point for point in plugins.registered(plugins.APPLICATIONS) if re.split("[.:]", point.value)[0] in names]
    lines = [f"[{plugins.APPLICATIONS}]", *(f"{point.name} = {point.value}" for point in points)]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    about = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {__version__}\n"
    (metadata / "METADATA").write_text(about, encoding="utf-8")


def ignored(_: str, names: list[str]) -> list[str]:
    """The names in a folder that are not copied."""
    return [name for name in names if LEFT_OUT.fullmatch(name)]


def settings_of(run: SubmittedRun, scrubber: Scrubber, organization: str, system: str) -> dict[str, Any]:
    """The settings of a run for another machine: without its seed, and without folders of its own machine."""
    config: dict[str, Any] = scrubber.settings(dict(run.config))
    group = {name: group_of(config, name) for name in ("data", "train", "staging", "submission")}
    group["data"]["root"] = DATASET
    group["train"]["seed"] = None
    if group["staging"].get("destination"):
        group["staging"]["destination"] = "$TMPDIR/hpcbench"
    group["staging"]["index"] = ""
    group["submission"] |= {"org": organization, "platform": system}
    return {**config, **group}


def requirements(environment: Mapping[str, Any]) -> str:
    """The packages of a run with their versions, for pip."""
    versions = group_of(environment, "versions")
    lines = [f"{name}=={version}" for name, version in versions.items()
             if name not in ("python", DISTRIBUTION) and not name.startswith("torch_")]  # fmt: skip
    return "\n".join(lines) + "\n"


def read_me(entries: Sequence[tuple[str, PlannedEntry]], application: str) -> str:
    """How to reproduce the entries of a benchmark; each comes with the name of its file of settings."""
    run = entries[0][1].first
    python = group_of(run.environment, "versions").get("python", "3.11")
    commit = commit_of(run)
    lines = [
        f"# {find_application(application).title}",
        "",
        f"{DISTRIBUTION} {version_of(run) or __version__}{f', commit {commit}' if commit else ''}, Python {python}.",
        "",
        "    pip install -r requirements.txt",
        "    export PYTHONPATH=$PWD/code",
        "",
        "One file of settings for each entry; the dataset is where `--data.root` says. A run of each, with the number "
        "of ranks as below:",
        "",
    ]
    for settings, entry in entries:
        summary = entry.first.summary
        mode = "time to train" if entry.mode == "strong" else "throughput, an instance"
        lines += [
            f"- {mode}: {counted(summary.nodes, 'node')} x {counted(summary.ranks_per_node, 'rank')}, "
            f"{counted(summary.threads, 'thread')} each, "
            f"global batch {summary.global_batch_size}; seeds {', '.join(str(run.summary.seed) for run in entry.runs)}",
            "",
            f"      python -m hpcbench train {application} --config settings/{settings} --data.root {DATASET}",
            "",
        ]
    return "\n".join(lines)


def version_of(run: SubmittedRun) -> str | None:
    """Version of this suite that made a run."""
    version = group_of(run.environment, "versions").get(DISTRIBUTION)
    return None if version is None else str(version)


def commit_of(run: SubmittedRun) -> str | None:
    """Commit of the checkout that made a run."""
    commit = group_of(run.environment, "source").get("commit")
    return None if commit is None else str(commit)


def code_faults(runs: Sequence[SubmittedRun]) -> list[str]:
    """Why the shipped code may differ from that of the runs."""
    made = {(version_of(run), commit_of(run)) for run in runs}
    told = []
    if len(made) > 1:
        words = "; ".join(sorted(f"{version or 'unknown'} {commit or ''}".strip() for version, commit in made))
        told.append(f"the runs were made by different code: {words}")
    here = (__version__, source()["commit"])
    for version, commit in sorted(made, key=str):
        if len(made) == 1 and version is not None and (version, commit) != here:
            was, now = (f"{code[0]}{f' (commit {code[1]})' if code[1] else ''}" for code in ((version, commit), here))
            told.append(f"the runs were made by {was}, and the code here is {now}; package with the code of the runs")
    if any(group_of(run.environment, "source").get("dirty") for run in runs):
        told.append("the code of the runs had changes that no commit has")
    return told
