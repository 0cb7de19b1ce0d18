"""The script of a job: a pure function of the job, the site and the scheduler.

What every script promises, on every scheduler (tests check each promise):

1. Its folder is the run folder. It is submitted there, and logs, record and results are there. The command runs where
   ``hpcbench submit`` ran, so that relative paths mean the same.
2. It requests nodes x ranks x cores x accelerators as the job says, and starts exactly one process per rank, each with
   a block of cores of its own.
3. Python starts once for each rank. All ranks first check (``hpcbench train --check-job``) and end the job within a
   minute, with the reason, if ranks, nodes, cores, accelerators or node-local storage are not what was requested.
4. One job and attempt at a time works in the run folder. A script that finds it held ends with exit code 4 and a line
   (``hpcbench jobs --take``), and has touched nothing. When a script ends, it records that.
5. ``warn_s`` before the time limit the ranks get SIGUSR1, write a checkpoint and end. A run that was interrupted, by
   this signal, by preemption or by a lost node, is queued again (requeued if users may, otherwise submitted again), at
   most ``attempts`` times in all, and continues from its checkpoint. ``hpcbench jobs --interrupted`` decides by its
   folder. A cancelled job is not queued again, even if it is cancelled while the script waits for the scheduler.
6. What was staged to a node is removed from it, and so is the Python environment (``--bring-environment``), as long as
   the script can still reach the node.
7. Its exit code is that of the training: 0 reached the target, 3 did not, 2 bad input, others as for every command.
   A job of packed runs (``job.packed``) starts ``hpcbench study execute`` in place of the training, once, and this
   process checks the job; if the runs have nodes of their own, it starts the ranks of each run as a step of the job,
   and these check.
8. No text of a user reaches the shell unquoted. In the node-local path and the environment ``$NAME`` is replaced, and
   nothing else.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import PurePath

from hpcbench import __version__
from hpcbench.batch.job import Job
from hpcbench.batch.launchers import LAUNCHERS
from hpcbench.batch.preemption import RECORD_VARIABLE
from hpcbench.batch.scheduler import Scheduler
from hpcbench.batch.shell_quoting import clock, expanded, quoted
from hpcbench.batch.site import Site
from hpcbench.environment_copy import ENVIRONMENT
from hpcbench.results.units import counted
from staging.errors import InputError
from staging.ranks.signals import WARNING_VARIABLE

PAUSES_S = (0, 5, 20, 60, 120)
"""Pauses before each try to queue an interrupted job again: a controller that restarts is away for a minute or two."""
START_S = 30
"""Seconds by which a job's time may have begun before its script, whose own clock tells when the limit is reached."""

ALSO_TERMINATE = {"lsf": ("INT",), "flux": ("HUP",)}
"""Signals that come where SIGTERM would. The ``bkill`` of LSF sends SIGINT, after which the run may end before SIGTERM
comes ten seconds later. The broker of Flux gets SIGTERM and sends SIGHUP to the script.
"""
IGNORE_LIMIT = "trap '' USR2  # sent at the time limit, ten minutes before LSF kills: the run may write its checkpoint"
"""What the script starts inherits this. By default, the signal would end the script, and nobody would continue the run.
"""

ASK_HERE = f"""export {RECORD_VARIABLE}; {RECORD_VARIABLE}=$(timeout 10 scontrol show job -o "$job_id") || true"""
"""Asks Slurm on the node of the script, for a command in an image that does not have Slurm."""


def job_script(job: Job, site: Site, scheduler: Scheduler) -> str:
    """The whole script. Raises ``InputError`` if a path or a word in it is not UTF-8."""
    head = [f"#!{scheduler.SHELL}", *(f"{scheduler.PREFIX} {line}" for line in scheduler.directives(job, site)), ""]
    parts = [
        about(job, site), place(job, site, scheduler), software(job), programs(job, site), hold(job, site),
        environment(job), training(job, site, scheduler), ending(job, scheduler),
    ]  # fmt: skip
    text = "\n".join([*head, *("\n".join(part) + "\n" for part in parts if part)])
    for line in text.splitlines():
        if not is_utf8(line):
            raise InputError(f"the job script would have a line that is not UTF-8, {line.strip()!r}; rename that")
    return text


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode ``text``; file names with other bytes have surrogates in their place."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def about(job: Job, site: Site) -> list[str]:
    """Comments that describe the job to people."""
    gpus = f" and {counted(job.gpus_per_rank, 'GPU')}" if job.gpus_per_rank else ""
    size = (
        f"{counted(job.nodes, 'node')} x {counted(job.ranks_per_node, 'rank')} of "
        f"{counted(job.cores_per_rank, 'core')}{gpus}, at most {clock(job.time_s)} an attempt, "
        f"{job.node_hours:.3g} node-hours."
    )
    lines = [f"{job.title} on {site.title}.", size, f"Written by hpcbench {__version__}; submitted in its folder."]
    return [f"# {line}" for text in lines for line in textwrap.wrap(text, 110)]


def place(job: Job, site: Site, scheduler: Scheduler) -> list[str]:
    """The folders, the job's id and the attempt number."""
    signals = " ".join([*ALSO_TERMINATE.get(site.scheduler, ()), "TERM"])
    return [
        "set -euo pipefail",
        "cancelled=",
        f"trap {when_terminated(job, site, scheduler)} {signals}  # the run ends first, and then what it staged goes",
        *([IGNORE_LIMIT] if site.scheduler == "lsf" else []),
        f"run={quoted(job.folder)}",
        f"job_id={scheduler.JOB_ID}",
        f"attempt={scheduler.ATTEMPT}",
        f"cd {quoted(job.work_dir)}",
    ]


def when_terminated(job: Job, site: Site, scheduler: Scheduler) -> str:
    """What the script does at SIGTERM, a word of the shell: it takes note, since that is how a job is cancelled.

    SIGTERM also comes at the time limit. Slurm can be asked which it was (``hpcbench.batch.preemption``); for other
    schedulers the script's own clock tells. Without a scheduler there is no such limit.
    """
    note = "cancelled=--cancelled"
    if scheduler.WARNS or site.scheduler == "local":
        return note
    return f"""'[ "$SECONDS" -ge {max(0, job.time_s - START_S)} ] || {note}'"""


def software(job: Job) -> list[str]:
    """Modules and environment; this Python's own folder also has mpiexec if pip has installed one."""
    lines = [f"module use {quoted(path)}" for path in job.module_paths]
    lines += [f"module load {quoted(name)}" for name in job.modules]
    if lines:
        # The scripts of sites' modules use variables that may be unset.
        lines = ["set +u", *lines, "set -u"]
    beside = PurePath(job.command[0]).parent
    return [
        *lines,
        *([f'export PATH={quoted(beside)}:"$PATH"'] if beside.is_absolute() else []),
        f"export OMP_NUM_THREADS={job.cores_per_rank}",
        f"export {WARNING_VARIABLE}={job.warn_s}",
        *(f"export {name}={expanded(value, unset=True)}" for name, value in job.environment.items()),
    ]


def programs(job: Job, site: Site) -> list[str]:
    """What starts the ranks, what they run, and their node-local folder."""
    launcher = LAUNCHERS[site.launcher]
    once = replace(job, ranks_per_node=1, gpus_per_rank=0)
    inside = [word.replace("{image}", job.image) for word in site.container.split()] if job.image else []
    path = f"{job.local_path.rstrip('/')}/hpcbench-$job_id"
    alone = (job.stages and job.simulated_nodes is None) or job.bring_environment
    steps = job.packed is not None and job.packed.launchers
    launchers = ({} if steps else {"launch": job}) | ({"launch_per_node": once} if alone else {})
    needed = job.ranks > 1 or site.scheduler != "local"
    return [
        *(
            f"{name}=({words(launcher(launched_job, site)) if needed else ''})"
            for name, launched_job in launchers.items()
        ),
        f"hpcbench=({words([*inside, *job.command])})",
        f"local_path={expanded(path)}",
    ]


def node_folder(job: Job) -> str:
    """Where a rank finds its node's storage; each node that is simulated on a real one has a folder of its own."""
    return '"$local_path"' if job.simulated_nodes is None else '"$local_path/{node}"'


def hold(job: Job, site: Site) -> list[str]:
    """Take the run folder, or end; record when the script ends, in whatever way."""
    return [
        "# One job and attempt at a time works in the run folder; another one ends here.",
        'hold=$("${hpcbench[@]}" jobs --take "$job_id" --attempt "$attempt" --process "$$" \\',
        f'    --scheduler {site.scheduler} --nodes {job.nodes} --mark {quoted(job.mark)} "$run")',
        """trap 'printf "%(%s)T %d\\n" -1 "$?" > "$hold.end" || true' EXIT""",
    ]


def environment(job: Job) -> list[str]:
    """Copy the Python environment to the nodes, so that the ranks run from there."""
    if not job.bring_environment:
        return []
    folder = f"{job.local_path.rstrip('/')}/hpcbench-$job_id-python"
    return [
        f"environment={expanded(folder)}",
        'remove_environment() { "${launch_per_node[@]}" rm -rf "$environment" || true; }',
        '"${launch_per_node[@]}" "${hpcbench[@]}" environment "$environment" || '
        '{ status=$?; remove_environment; exit "$status"; }',
        'shared_hpcbench=("${hpcbench[@]}")',
        f'hpcbench=("$environment/{ENVIRONMENT}/bin/python" -P -m hpcbench)',
    ]


def asked_for(job: Job) -> str:
    """The option for what all ranks check first; they test storage where the job stages to."""
    asked = f"--check-job ranks={job.ranks},nodes={job.nodes},cores={job.cores_per_rank},gpus={job.gpus_per_rank}"
    return f"{asked},local_gib={job.local_gib:.6g}" if job.stages and job.local_gib else asked


def is_warned(site: Site, scheduler: Scheduler) -> bool:
    """Whether the scheduler itself warns the ranks: Slurm signals steps, and those of other launchers are in none."""
    return scheduler.WARNS and (site.scheduler != "slurm" or site.launcher == "srun")


def training(job: Job, site: Site, scheduler: Scheduler) -> list[str]:
    """The run, from its last checkpoint if it has one; or the runs that the job packs."""
    settings = ['--run-dir "$run" --hold "$hold"', "--resume-or-start"]
    if not any(word.startswith("--parallel.threads") for word in job.arguments):
        settings.append(f"--parallel.threads {job.cores_per_rank}")
    if job.stages:
        settings.append(f"--staging.destination {node_folder(job)}")
    if job.simulated_nodes is not None:
        settings.append(f"--parallel.simulated_nodes {job.simulated_nodes}")
    # In the foreground: `timeout` would otherwise signal the launcher twice, and a second signal ends a run at once.
    limit = "" if is_warned(site, scheduler) else 'timeout --foreground --signal=USR1 --preserve-status "$left_s" '
    begin = ['echo "hpcbench: job $job_id, attempt $attempt, $(date)"', "status=0"]
    if limit:
        # A start may have taken all the time: `timeout 0` would set no limit, and it refuses a number below that.
        begin += [f"left_s=$(({job.time_s - job.warn_s} - SECONDS))", '[ "$left_s" -gt 0 ] || left_s=1']
    if job.packed is not None:
        if job.packed.launchers:
            stage = ' --local-path "$local_path"' if job.stages else ""
            return [*begin, f'{limit}"${{hpcbench[@]}}" study execute "$run"{stage} || status=$?']
        execute = f'{limit}"${{launch[@]}}" "${{hpcbench[@]}}" study execute "$run"'
        return [*begin, f"{execute} {asked_for(job)} || status=$?"]
    command = f'{limit}"${{launch[@]}}" "${{hpcbench[@]}}" train'
    return [
        *begin,
        f"{command} {words(job.arguments)} \\",
        f"    {asked_for(job)} \\",
        f"    {' '.join(settings)} || status=$?",
    ]


def ending(job: Job, scheduler: Scheduler) -> list[str]:
    """Leave the nodes as they were, and queue the job again if the run was interrupted."""
    lines = []
    if job.stages and job.simulated_nodes is not None:
        clean = '"${hpcbench[@]}" stage --clean "$node" && rmdir "$node" || true'
        lines = [f'for node in "$local_path"/*; do {clean}; done', 'rmdir "$local_path" || true']
    elif job.stages:
        lines = ['"${launch_per_node[@]}" "${hpcbench[@]}" stage --clean "$local_path" || true']
        if "{" not in job.local_path:  # with braces it differs between nodes, and only hpcbench can fill it in
            lines.append('"${launch_per_node[@]}" rmdir "$local_path" || true')
    resubmit = [f"    {line}" for line in scheduler.resubmit_lines()]
    if job.bring_environment:
        lines += ["remove_environment", 'hpcbench=("${shared_hpcbench[@]}")']
    # Where the next attempt is the same job, one that cannot be queued again hands over to nobody.
    given_up = "echo 'hpcbench: the job cannot be queued again'"
    given_up = f'{{ rm -f "$hold.next"; {given_up}; }}' if scheduler.KEEPS_ID else given_up
    return [
        *lines,
        "resubmit() {",
        *resubmit,
        "}",
        f'if [ "$attempt" -lt {job.attempts} ]; then last=; else last=--last-attempt; fi',
        "interrupted() {",
        "    asked=$cancelled",
        *([f"    {ASK_HERE}"] if job.image and scheduler.WARNS else []),
        '    "${hpcbench[@]}" jobs --interrupted $asked $last --hold "$hold" "$run"',
        "}",
        'if [ "$status" -ne 0 ] && interrupted; then',
        f"    for pause in {' '.join(map(str, PAUSES_S))}; do",
        '        sleep "$pause"',
        '        [ "$cancelled" = "$asked" ] || interrupted || break  # it may have been cancelled during the pause',
        "        resubmit && break",
        f"    done || {given_up}",
        "fi",
        'exit "$status"',
    ]


def words(them: list[str] | tuple[str, ...]) -> str:
    """Words quoted for the shell."""
    return " ".join(quoted(word) for word in them)
