"""A scaling study from first to last: plan, show, run, report."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.site import Site, find_site
from hpcbench.batch.submission import cancel
from hpcbench.exits import BAD_INPUT, DONE, Aborted
from hpcbench.results.tables import table
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.progress import say
from hpcbench.study.scaling.advance import Advance, counted
from hpcbench.study.scaling.definition import Scaling, grow
from hpcbench.study.scaling.jobs import job_of
from hpcbench.study.scaling.joined import read_convergence, with_convergence
from hpcbench.study.scaling.ladder import (
    all_runs,
    groups,
    instances,
    local_batch_size,
    places,
    points,
)
from hpcbench.study.scaling.report import Extras, report
from hpcbench.study.scaling.request import check_data, check_points
from hpcbench.study.scaling.run_status import UNDER_WAY, RunStatus, Status, look_at_runs
from staging.errors import InputError

KINDS: dict[Status, str] = {
    "done": "done", "running": "running", "waiting": "waiting", "unknown": "unknown", "failed": "failed",
    "absent": "left",
}  # fmt: skip
"""The status of runs, and its word in tables."""


@dataclass(frozen=True)
class Ways:
    """How a study is run; nothing of it changes a result."""

    at_once: int | None = None
    wait: bool = False
    retry: bool = False


def run_study(study: Scaling, path: Path, ways: Ways, extras: Extras, *, dry_run: bool = False) -> int:
    """Run or submit what is missing of the study in the folder ``path``; ``dry_run`` only shows the plan.

    Returns the exit code. Raises ``InputError`` for a folder of another study or one in use, ``Aborted`` for a signal.
    """
    folder = StudyFolder(path)
    if dry_run:
        say(plan(merged(study, folder, extras.convergence)))
        return DONE
    with held(folder):
        study = merged(study, folder, extras.convergence)
        is_new = folder.read() is None
        folder.write(study.as_dict())
        say(plan(study))
        site = find_site(study.site)
        here = site.scheduler == "local"
        at_once = ways.at_once or (1 if here else None)
        wait = ways.wait or here
        advance = Advance(study, site, folder, at_once, wait, ways.retry, longest_poll_s=0.5 if here else 15.0)
        try:
            runs = advance.run()
        except (InputError, Aborted):
            if is_new and nothing_began(folder):
                folder.definition.unlink()
                raise
            with contextlib.suppress(InputError):  # why it ended is more than why there is no page
                report(study, folder, extras)
            raise
        finish(study, folder, runs, wait, extras)
    return DONE


def nothing_began(folder: StudyFolder) -> bool:
    """Whether no run has left anything; the empty folders of jobs that were refused go."""
    for path in folder.runs.iterdir():
        if not any(path.iterdir()):
            path.rmdir()
    return not any(folder.runs.iterdir())


def finish(study: Scaling, folder: StudyFolder, runs: Mapping[str, RunStatus], waited: bool, extras: Extras) -> None:
    """The page, or where the jobs are."""
    if any(each.status == "done" for each in runs.values()):
        report(study, folder, extras)
    failed = sum(each.status == "failed" for each in runs.values())
    if failed:
        say(f"{failed} failed; start again: hpcbench study resume {folder.path}")
    if not waited:
        say(f"\n{counts(runs)}\nstatus: hpcbench study status {folder.path}\n"
            f"tables and page, when they are done: hpcbench study report {folder.path}")  # fmt: skip


def merged(study: Scaling, folder: StudyFolder, convergence: str | None) -> Scaling:
    """The study together with what the folder has of it, and the convergence study that it joins.

    Raises ``InputError`` where the folder has another study, or the convergence study is not there.
    """
    both = with_convergence(grown(study, folder), folder.path, convergence)
    read_convergence(both, folder.path)
    return both


def grown(study: Scaling, folder: StudyFolder) -> Scaling:
    """The study together with what the folder has of it. Raises ``InputError`` where that is another."""
    before = folder.read()
    if before is None:
        return study
    if before.get("kind") != study.mode:
        raise InputError(
            f"{folder.path} holds another study: its kind is {before.get('kind')}, this one's {study.mode}; give "
            "another --study-dir"
        )
    both = grow(Scaling.from_dict(before, folder.definition), study, folder.path)
    if len(points(both)) > len(points(study)):  # sizes of the one may meet values of the other
        check_points(both, find_site(both.site))
        check_data(both)
    return both


def read_study(folder: StudyFolder) -> Scaling:
    """The definition in a study's folder."""
    found = folder.read()
    assert found is not None
    return Scaling.from_dict(found, folder.definition)


def plan(study: Scaling) -> str:
    """The ladder as a table, and what it costs at most."""
    site, rows = find_site(study.site), []
    headers = ["nodes", "instances", "ranks", "local batch", "accumulation", "global batch", "runs"]
    for nodes in study.nodes:
        size, count = study.instance_nodes or nodes, instances(study, nodes)
        local = local_batch_size(study, size)
        rows.append([
            str(nodes), str(count), str(nodes * study.ranks_per_node), str(local), str(study.accumulation),
            str(local * study.accumulation * places(study, size)),
            str(sum(run.point.nodes == nodes for run in all_runs(study))),
        ])  # fmt: skip
    head = textwrap.fill(headline(study, site), 100, subsequent_indent="  ")
    return f"{head}\n\n{table(headers, rows, right=headers)}\n\n{cost(study, site)}\n"


def headline(study: Scaling, site: Site) -> str:
    """What the study is, in a line or two."""
    what = {
        "strong": "strong scaling (the same global batch on more nodes)",
        "weak": "weak scaling (the same local batch on more nodes)",
        "throughput": f"throughput (more instances of {study.instance_nodes} nodes)",
    }[study.mode]
    axes = "".join(f"; {name} {', '.join(value or 'unset' for value in values)}" for name, values in study.vary.items())
    until = "to the target" if study.steps is None else f"{study.steps} steps"
    size = f"{counted(study.repeats, 'repeat')} of {counted(len(points(study)), 'point')}"
    return f"{study.application}, preset {study.preset}, on {site.title}: {what}, {until}, {size}{axes}"


def cost(study: Scaling, site: Site) -> str:
    """Node-hours at most, by the time limit of the jobs; here, where nothing limits them, what is simulated."""
    jobs = [(run, job_of(study, site, run, Path(run.name))) for run in all_runs(study)]
    if site.scheduler == "local":
        cores = counted(jobs[0][1].cores_per_rank, "core")
        return f"{counted(len(jobs), 'run')} on this machine; its nodes are simulated: {cores} for each of their ranks"
    hours = sum(job.node_hours for _, job in jobs)
    total = f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
    return f"{counted(len(jobs), 'job')}, at most {total} node-hours ({jobs[0][1].time_s / 3600:.3g} h each)"


def status(study: Scaling, folder: StudyFolder) -> str:
    """The status of every point, and why runs failed or are unknown."""
    runs = look_at_runs(folder, [run.name for run in all_runs(study)])
    kinds = [kind for kind in KINDS if kind != "unknown" or any(each.status == kind for each in runs.values())]
    rows = []
    for point in points(study):
        own = [runs[run.name].status for group in groups(study) for run in group if run.point == point]
        variant = [point.label] if study.vary else []
        rows.append([str(point.nodes), *variant, *(str(own.count(kind)) for kind in kinds)])
    headers = ["nodes", *(["variant"] if study.vary else []), *map(KINDS.__getitem__, kinds)]
    told = [f"{name}: {each.reason}" for name, each in runs.items() if each.status in ("failed", "unknown")]
    failed = any(each.status == "failed" for each in runs.values())
    again = [f"start them again: hpcbench study resume {folder.path}"] if failed else []
    return "\n".join([table(headers, rows, right=headers[-len(kinds) :]), "", counts(runs), *told, *again])


def cancel_jobs(study: Scaling, folder: StudyFolder) -> int:
    """Cancel every job of the study that waits or runs, and say so; the exit code."""
    runs = look_at_runs(folder, [run.name for run in all_runs(study)])
    refused = 0
    under_way = {name: each.job for name, each in runs.items() if each.status in UNDER_WAY and each.job is not None}
    for name, job in under_way.items():
        try:
            cancel(job)
        except InputError as error:
            refused += 1
            say(f"{name}: {error}")
        else:
            say(f"{name}: job {job.job_id} is being cancelled")
    if not under_way:
        say(f"no job of {folder.path} waits or runs")
    return BAD_INPUT if refused else DONE


def counts(runs: Mapping[str, RunStatus]) -> str:
    """How many runs have which status."""
    states = [each.status for each in runs.values()]
    shown = [(kind, word) for kind, word in KINDS.items() if kind != "unknown" or kind in states]
    return "runs: " + ", ".join(f"{states.count(kind)} {word}" for kind, word in shown)
