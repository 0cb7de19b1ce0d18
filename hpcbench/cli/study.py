"""``hpcbench study``: matrices of runs, their status, and what they found."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hpcbench.application import installed
from hpcbench.cli import study_convergence, study_gains, study_scaling
from hpcbench.cli.arguments import Parser, Subcommand, run_subcommand
from staging.cli import said_once
from staging.errors import InputError

DESCRIPTION = """\
A study is a matrix of trainings in one folder, with tables, plots and a page. `convergence`
measures how many epochs a model needs as the batch grows; `strong`, `weak` and `throughput`
measure speed on more and more nodes, as batch jobs or simulated on this machine; `gains`
measures what optimisation brings on this machine.

  hpcbench study strong cosmoflow --preset laptop --data.root data/cosmoflow --nodes 1,2 \\
      --steps 60 --study-dir studies/s
  hpcbench study status studies/s
  hpcbench study report studies/s

`hpcbench study COMMAND --help` shows the options of a command, with an example.
"""
STATUS = """\
Show the status of the runs of a study: done, running, waiting, interrupted, failed.

  hpcbench study status studies/strong

The status of jobs comes from the scheduler (squeue, sacct, qstat, bjobs, flux jobs). The exit
code is 2 if the record of a job is damaged, and 0 otherwise, whatever the runs' status.
"""
RESUME = """\
Start the missing runs of a study, and repeat those that failed.

  hpcbench study resume studies/strong
  hpcbench study resume studies/mine

In a scaling study the folder of a failed run is kept as NAME.failed-1. If an instance of a
throughput study failed, its whole repeat is made again, and the folders of the other instances
are kept as NAME.aside-1. A convergence study continues its runs from their checkpoints, and
submits the next round of a search.
"""
CANCEL = """\
End the waiting and running jobs of a study. Its runs stay, and `resume` continues them.

  hpcbench study cancel studies/strong
"""
REPORT = """\
Write the tables, plots and page of a study again, from its run folders alone.

  hpcbench study report studies/mine
  hpcbench study report studies/strong --convergence studies/mine --runs 10

--convergence joins a scaling study with the epochs(B) of a convergence study of the same
application: time to solution at every size, and a proposal table for --runs trainings. The
study remembers it, as a relative path if you give one; `--convergence none` reports without it.
"""
COLLECT = """\
Copy what a repository should keep of a study: a few KB per run, without the machine's names.

  hpcbench study collect studies/mine --out docs/studies/mine
"""
EXECUTE = """\
Make the runs that a job packs, side by side: each on cores and accelerators of its own, or, as
an instance of a throughput study, on nodes of its own. The script of such a job calls this
command. SIGUSR1 or SIGTERM stops all runs with checkpoints.

  hpcbench study execute studies/mine/jobs/0001
"""
PUBLISHED = """\
Fit the critical batch size to the published reference convergence points: tables on the
terminal, a plot in DIR.

  hpcbench study published studies/published
"""


def add_arguments(parser: Parser) -> None:
    """The subcommands."""
    parser.add_subcommands(SUBCOMMANDS)


def add_folder(parser: Parser) -> None:
    """The folder of a study."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a study, its --study-dir")


def add_job_folder(parser: Parser) -> None:
    """The folder of a job."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a job: STUDY/jobs/NUMBER")
    parser.add_argument("--local-path", metavar="DIR", help="node-local folder that the runs stage to")
    parser.add_argument("--check-job", metavar="ranks=1,...", help="check first that the job got its nodes, cores, "
                        "gpus, and end if not, as `hpcbench train --check-job` does (what job scripts do)")  # fmt: skip


def add_resume_arguments(parser: Parser) -> None:
    """Options of ``resume``."""
    add_folder(parser)
    study_scaling.add_running_options(
        parser,
        "1; of a convergence study one for each accelerator, else for every two cores, or as many as its "
        "parallel.threads",
    )
    study_scaling.add_page_options(parser)


def add_report_arguments(parser: Parser) -> None:
    """Options of ``report``."""
    add_folder(parser)
    study_scaling.add_page_options(parser)


def add_collect_arguments(parser: Parser) -> None:
    """Options of ``collect``."""
    add_folder(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to collect into")


def add_published_arguments(parser: Parser) -> None:
    """Options of ``published``."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder to write the plot to")


def status(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Show the status of the runs of a study."""
    text, code = kind_of(args).status(args.folder)
    print(text)
    return int(code)


def resume(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Continue a study."""
    kind = kind_of(args)
    if kind is not study_scaling:
        refuse_page_options(args, kind)
    return int(kind.resume(args.folder, args))


def cancel(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """End the jobs of a study."""
    return int(kind_of(args).cancel(args.folder))


def execute(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Make the runs that a job packs."""
    from hpcbench.cli.train import asked_for
    from hpcbench.study.execute import execute as make_packed_runs

    asked = said_once(lambda: asked_for(args.check_job))
    if asked is not None and asked.ranks != 1:
        raise InputError(f"--check-job ranks ({asked.ranks}) must be 1: one process makes the packed runs of a job")
    return make_packed_runs(args.folder, args.local_path, asked)


def report(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the page of a study again."""
    kind = kind_of(args)
    if kind is study_scaling:
        study_scaling.report(args.folder, args)
    else:
        refuse_page_options(args, kind)
        kind.report(args.folder)
    return 0


def refuse_page_options(args: argparse.Namespace, kind: Any) -> None:
    """Raise ``InputError`` for options that only the page of a scaling study takes."""
    word = "gains" if kind is study_gains else "convergence"
    for option in ("convergence", "runs", "contingency", "min_efficiency"):
        if getattr(args, option) is not None:
            raise InputError(
                f"--{option.replace('_', '-')} is for scaling studies, and {args.folder} is a {word} study"
            )


def collect(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Copy a study."""
    from hpcbench.results.units import counted

    try:
        runs = kind_of(args).collect(args.folder, args.out)
    except OSError as error:
        raise InputError(
            f"--out {args.out} cannot be written ({error.strerror}); free some space there, or give another folder"
        ) from None
    print(f"{args.out}: {counted(runs, 'run')}")
    return 0


def published(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Fit the published reference points: tables on the terminal, a plot in the folder."""
    from hpcbench.study.published import fit_table, point_table, write_published

    print(f"{fit_table()}\n{point_table()}\n{write_published(args.folder)}")
    return 0


def kind_of(args: argparse.Namespace) -> Any:
    """The module for the kind of study that the folder holds. Raises ``InputError`` if it holds none."""
    from hpcbench.study.folder import StudyFolder

    path = args.folder
    if str(path) in installed() and not path.is_dir():
        raise InputError(f"study {args.subcommand.name} takes the folder of a study, not the application {path}")
    definition = StudyFolder(path).read()
    if definition is None:
        raise InputError(f"{path} holds no study.json; give the --study-dir of a study")
    kinds: dict[Any, Any] = {subcommand.name: study_scaling for subcommand in study_scaling.SCALING}
    return (kinds | {study_gains.GAINS.name: study_gains}).get(str(definition.get("kind")), study_convergence)


SUBCOMMANDS = (
    study_convergence.CONVERGENCE,
    *study_scaling.SCALING,
    study_gains.GAINS,
    Subcommand("status", "show the status of the runs", STATUS, add_folder, status, takes_settings=False),
    Subcommand("resume", "start the missing runs of a study, and repeat failed ones", RESUME, add_resume_arguments,
               resume, takes_settings=False),
    Subcommand("cancel", "end the jobs of a study", CANCEL, add_folder, cancel, takes_settings=False),
    Subcommand("report", "write the tables, plots and page again", REPORT, add_report_arguments, report,
               takes_settings=False),
    Subcommand("collect", "make a small copy of a study for a repository", COLLECT, add_collect_arguments, collect,
               takes_settings=False),
    Subcommand("execute", "make the packed runs of a job, as its script does", EXECUTE, add_job_folder, execute,
               takes_settings=False),
    Subcommand("published", "fit the published reference points", PUBLISHED, add_published_arguments,
               published, takes_settings=False),
)  # fmt: skip
run_with_overrides = run_subcommand
