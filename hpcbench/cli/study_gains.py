"""``hpcbench study gains``: what optimisation brings, option by option and together."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import Parser, Subcommand, add_preset_options, preset_of
from hpcbench.config.schema import MOST_STEPS
from hpcbench.exits import DONE
from staging.number_options import MOST_PER_NODE, add_whole

DESCRIPTION = """\
Measure what optimisation brings to an application on this machine. A plain baseline (float32,
nothing compiled, gradients sent when all are there) runs beside every option alone, then beside
all that helped together: TF32, bf16 and fp16, the compiler, CUDA graphs, channels last, the fused
optimizer, overlap of communication, size and order of buckets, gradients summed in half
precision, the loader, and threads x ranks.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench study gains cosmoflow --preset laptop --data.root data/cosmoflow --steps 40 \\
      --study-dir studies/gains --dry-run
      shows the options, what each sets, and what this machine cannot do, and why
  hpcbench study gains cosmoflow --preset laptop --data.root data/cosmoflow --steps 12 \\
      --repeats 1 --only bf16,overlap --study-dir studies/gains
      tries two of them, once; without --repeats and --only every one is run six times

Every run trains on the same samples. Each repeat has its own seed, and runs the baseline and all
options in random order, so that a machine that becomes slower favours none. The page has the
time of a step over the baseline's with its 95 % interval, the quality after the same number of
samples and whether it differs, and the parts of a step that changed.

A dotted setting such as --train.precision bf16-mixed holds for all runs, and is then no option.
The same command again, or `hpcbench study resume DIR`, continues where it stopped; with more
repeats or options the study grows. On a cluster, run it in a job of one node.
"""


def add_arguments(parser: Parser) -> None:
    """Options of a gains study; dotted settings come on top."""
    add_preset_options(parser)
    parser.add_argument("--study-dir", required=True, type=Path, metavar="DIR",
                        help="folder of the study, new or to be continued")  # fmt: skip
    matrix = parser.add_argument_group("the matrix")
    add_whole(matrix, "--steps", 1, MOST_STEPS, "optimizer steps of a run (default: 60)", default=60)
    add_whole(matrix, "--repeats", 1, 1000, "runs of each option, each with its own seed (default: 6)", default=6)
    add_whole(matrix, "--ranks", 1, MOST_PER_NODE,
              "ranks of the baseline (default: one per accelerator, else 2 that share the cores)")  # fmt: skip
    matrix.add_argument("--only", default="", metavar="NAME,...", help="options to measure; --dry-run lists them")
    matrix.add_argument("--without", default="", metavar="NAME,...", help="options to leave out")
    running = parser.add_argument_group("running")
    running.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    running.add_argument("--retry", action="store_true", help="repeat the runs that failed")
    running.add_argument("--keep", action="store_true", help="keep per-step tables of the runs")


def run(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Plan, show and run the options, or continue with them."""
    application = find_application(args.app)
    from hpcbench.study.gains.request import GainsRequest, define
    from hpcbench.study.gains.study import run_study
    from hpcbench.study.runner import ExecutionOptions

    asked = GainsRequest(
        preset_of(args), args.steps, args.repeats, args.ranks, args.only, args.without, tuple(args.config),
        "hpcbench " + " ".join(shlex.quote(word) for word in sys.argv[1:]),
    )  # fmt: skip
    study = define(application, asked, overrides)
    return run_study(study, args.study_dir, ExecutionOptions(retry=args.retry, keep=args.keep), dry_run=args.dry_run)


GAINS = Subcommand("gains", "what each optimisation brings, alone and together", DESCRIPTION, add_arguments, run)


def status(path: Path) -> tuple[str, int]:
    """The plan, with what is done so far, and the exit code."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.gains.study import read_study, status_text

    folder = StudyFolder(path)
    return status_text(read_study(folder), folder), DONE


def resume(path: Path, args: argparse.Namespace) -> int:
    """Make the missing runs, and repeat those that failed."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.gains.study import read_study, run_study
    from hpcbench.study.runner import ExecutionOptions

    study = read_study(StudyFolder(path))
    return run_study(study, path, ExecutionOptions(retry=True), dry_run=args.dry_run)


def cancel(path: Path) -> int:
    """Say that there are no jobs: the runs are processes of the command itself."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.study_jobs import cancel_jobs

    return cancel_jobs(StudyFolder(path), [])


def report(path: Path) -> None:
    """Write tables, plots and page again."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.gains.study import report as write_report

    write_report(StudyFolder(path))


def collect(path: Path, out: Path) -> int:
    """Copy what a repository keeps of the study; returns the number of runs."""
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.gains.collect import collect as copy_study
    from hpcbench.study.gains.study import read_study

    folder = StudyFolder(path)
    return copy_study(read_study(folder), folder, out)
