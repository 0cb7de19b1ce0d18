"""``hpcbench study strong|weak|throughput``: the same training on more and more nodes."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import find_application
from hpcbench.cli.arguments import Parser, Subcommand, add_preset_options, preset_of
from hpcbench.cli.submit import add_job_options, job_request
from hpcbench.config.schema import LARGEST_SEED, MOST_REPEATS, MOST_SAMPLES, MOST_STEPS
from staging.number_options import MOST_NODES, MOST_PER_NODE, add_real, add_whole

if TYPE_CHECKING:
    from hpcbench.study.scaling.proposal import Extras

COMMON = """
Without --site the nodes are simulated: each is a rank on this machine. With it every run is a
batch job: the command shows the plan with its node-hours and what each job needs of its nodes,
refuses what does not fit, then submits; --dry-run stops before that. `hpcbench study status DIR`
shows the status of the runs, `hpcbench study report DIR` makes table, plots and page.

--vary tier=shared,node,memory --vary data.train_samples=4096,65536 measures the storage tiers
by dataset size; --vary parallel.overlap=true,false, parallel.bucket_bytes=1048576,26214400 or
data.prefetch=1,4,16 measures what communication and reading cost.

The same command with more sizes, repeats or values makes the study grow. Dotted settings such
as --train.precision 32-true hold for all runs; `hpcbench train APP --list` shows them.
"""
STRONG = (
    """\
Strong scaling: the same global batch on more and more nodes.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench study strong cosmoflow --preset laptop --data.root data/cosmoflow --nodes 1,2 \\
      --steps 60 --study-dir studies/strong
  hpcbench study strong cosmoflow --preset mlperf --data.root /pscratch/cosmoflow \\
      --site perlmutter-gpu --account m1234 --nodes 8,16,32 --steps 200 --no-stage \\
      --study-dir studies/big
"""
    + COMMON
)
WEAK = (
    """\
Weak scaling: the same batch per rank on more and more nodes; the global batch grows.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench study weak cosmoflow --preset laptop --data.root data/cosmoflow --nodes 1,2 \\
      --steps 60 --study-dir studies/weak
  hpcbench study weak cosmoflow --preset mlperf --data.root /pscratch/cosmoflow \\
      --site perlmutter-gpu --account m1234 --nodes 8,16,32 --steps 200 --no-stage \\
      --study-dir studies/big
"""
    + COMMON
)
THROUGHPUT = (
    """\
Throughput: trainings of --instance-nodes nodes each, more and more of them side by side.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench study throughput cosmoflow --preset laptop --data.root data/cosmoflow --nodes 1,2 \\
      --instance-nodes 1 --steps 60 --study-dir studies/throughput
  hpcbench study throughput cosmoflow --preset mlperf --data.root /pscratch/cosmoflow \\
      --site perlmutter-gpu --account m1234 --nodes 16,32,64 --instance-nodes 16 \\
      --no-stage --study-dir studies/instances
"""
    + COMMON
)


def add_strong_arguments(parser: Parser) -> None:
    """Options of strong scaling."""
    add_whole(add_matrix(parser), "--global-batch-size", 1, MOST_SAMPLES,
              "global batch of every size (default: what train.local_batch_size gives on the smallest)")  # fmt: skip
    add_execution(parser)


def add_weak_arguments(parser: Parser) -> None:
    """Options of weak scaling."""
    add_matrix(parser)
    add_execution(parser)


def add_throughput_arguments(parser: Parser) -> None:
    """Options of throughput."""
    add_whole(add_matrix(parser), "--instance-nodes", 1, MOST_NODES, "nodes of each instance", required=True)
    add_execution(parser)


def add_matrix(parser: Parser) -> argparse._ArgumentGroup:
    """Add the options of every scaling study; returns the group, to which each mode adds its own."""
    add_preset_options(parser)
    add_whole(parser, "--samples", 1, MOST_SAMPLES, "number of training samples (data.train_samples)", metavar="N")
    parser.add_argument("--study-dir", required=True, type=Path, metavar="DIR",
                        help="folder of the study, new or to be continued")  # fmt: skip
    matrix = parser.add_argument_group("the matrix")
    matrix.add_argument("--nodes", required=True, metavar="N,N,...", help="sizes, in nodes")
    add_whole(matrix, "--repeats", 1, MOST_REPEATS, "runs of each point (default: 3)", default=3)
    add_whole(matrix, "--steps", 1, MOST_STEPS, "train for N steps instead of to the target")
    matrix.add_argument("--vary", action="append", default=[], metavar="KEY=V,V,...", help="a further axis: a "
                        "setting that leaves the batch as it is, or tier=shared,node,memory; repeatable")  # fmt: skip
    add_whole(matrix, "--seed", 0, LARGEST_SEED, "seed of the first run (default: 1)", default=1)
    matrix.add_argument("--no-stage", action="store_true", help="read the dataset where it is")
    return matrix


def add_execution(parser: Parser) -> None:
    """Add the options for how and where the runs are made, and for their page."""
    running = add_running_options(parser)
    running.add_argument("--retry", action="store_true", help="repeat the runs that failed")
    add_page_options(parser)
    jobs = parser.add_argument_group("each job")
    jobs.add_argument("--site", default="local", metavar="NAME|FILE",
                      help="`hpcbench sites` lists them (default: local, where nodes are simulated)")  # fmt: skip
    add_job_options(jobs)


def add_running_options(parser: Parser, default: str = "1") -> argparse._ArgumentGroup:
    """Add the options for how the runs are made, ``default`` of them at once here; returns their group."""
    running = parser.add_argument_group("running")
    jobs = f"runs here (default: {default}), or jobs in a queue (default: the site's most_jobs, else all)"
    add_whole(running, "--jobs", 1, MOST_PER_NODE, f"how many at once: {jobs}")
    running.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    running.add_argument("--wait", action="store_true", help="stay until all jobs have ended")
    return running


def add_page_options(parser: Parser) -> None:
    """Add the options for what the page joins to the measurements."""
    page = parser.add_argument_group("the page of a scaling study")
    page.add_argument("--convergence", metavar="DIR", help="convergence study to take epochs(B) from; the study "
                      "remembers it, `none` forgets it")  # fmt: skip
    add_whole(page, "--runs", 1, 10**6, "trainings that the proposal table is for (default: 5)")
    add_real(page, "--contingency", 0, 100, "fraction of the hours that the proposal table adds (default: 0.15)")
    add_real(page, "--min-efficiency", 0, 1, "sizes below are not recommended in the table (default: 0.7)")


def run(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Plan, show and run a scaling study, or continue it."""
    application = find_application(args.app)
    from hpcbench.study.runner import ExecutionOptions
    from hpcbench.study.scaling.request import ScalingRequest, define
    from hpcbench.study.scaling.study import run_study

    asked = ScalingRequest(
        mode=args.subcommand.name, preset=preset_of(args), site=args.site, nodes=args.nodes,
        request=job_request(args, 1), repeats=args.repeats, steps=args.steps,
        global_batch_size=getattr(args, "global_batch_size", None),
        instance_nodes=getattr(args, "instance_nodes", None), vary=tuple(args.vary),
        files=tuple(args.config), stages=not args.no_stage, seed=args.seed,
        command="hpcbench " + " ".join(shlex.quote(word) for word in sys.argv[1:]),
    )  # fmt: skip
    samples = {} if args.samples is None else {"data.train_samples": str(args.samples)}
    study = define(application, asked, {**overrides, **samples})
    options = ExecutionOptions(args.jobs, args.wait, args.retry)
    return run_study(study, args.study_dir, options, extras(args), dry_run=args.dry_run)


SCALING = (
    Subcommand("strong", "the same global batch on more and more nodes", STRONG, add_strong_arguments, run),
    Subcommand("weak", "the same batch per rank on more and more nodes", WEAK, add_weak_arguments, run),
    Subcommand("throughput", "more and more trainings side by side", THROUGHPUT, add_throughput_arguments, run),
)


def extras(args: argparse.Namespace) -> Extras:
    """What the page joins to the measurements, from the command line."""
    from hpcbench.study.scaling.proposal import Campaign, Extras

    names = [field.name for field in fields(Campaign)]
    asked = {name: value for name in names if (value := getattr(args, name)) is not None}
    return Extras(args.convergence, Campaign(**asked))


def status(path: Path) -> tuple[str, int]:
    """The status of every point, and the exit code."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.scaling import study

    folder = StudyFolder(path)
    return study.status(study.read_study(folder), folder)


def resume(path: Path, args: argparse.Namespace) -> int:
    """Start the missing runs, and repeat those that failed."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.runner import ExecutionOptions
    from hpcbench.study.scaling.request import check_data
    from hpcbench.study.scaling.study import read_study, run_study

    study = read_study(StudyFolder(path))
    check_data(study)
    options = ExecutionOptions(args.jobs, args.wait, retry=True)
    return run_study(study, path, options, extras(args), dry_run=args.dry_run)


def cancel(path: Path) -> int:
    """End the waiting and running jobs; exit code 2 if one could not be ended."""
    from hpcbench.study.folder import StudyFolder, held
    from hpcbench.study.scaling.study import cancel_study

    folder = StudyFolder(path)
    with held(folder):  # nobody may submit meanwhile
        return cancel_study(folder)


def report(path: Path, args: argparse.Namespace) -> None:
    """Write tables, plots and page again."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.scaling.report import report as write_report
    from hpcbench.study.scaling.study import read_study

    folder = StudyFolder(path)
    write_report(read_study(folder), folder, extras(args))


def collect(path: Path, out: Path) -> int:
    """Copy what a repository keeps of the study; returns the number of runs."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.scaling.collect import collect as copy_study
    from hpcbench.study.scaling.study import read_study

    folder = StudyFolder(path)
    return copy_study(read_study(folder), folder, out)
