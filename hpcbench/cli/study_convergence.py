"""``hpcbench study convergence``: epochs to the target against batch size."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from hpcbench.application import find_application
from hpcbench.cli.arguments import Parser, Subcommand, add_preset_options, preset_of
from hpcbench.cli.submit import add_job_options, job_request
from hpcbench.config.schema import MOST_SAMPLES
from hpcbench.study.definition import MOST_SEEDS, MOST_WIDENINGS
from staging.number_options import MOST_NODES, MOST_PER_NODE, add_real, add_whole

DESCRIPTION = """\
Measure how many epochs, samples and steps a model needs to reach its target as the batch grows,
for several optimizers and seeds. One process computes what the ranks of a large machine would.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench study convergence cosmoflow --preset laptop --data.root data/cosmoflow \\
      --batch-sizes 8,32,128 --optimizers sgd,lars,lamb --seeds 3 --study-dir studies/mine
      shows the plan with an estimate of time, then runs it; --dry-run stops before that
  hpcbench study convergence cosmoflow --preset laptop --data.root /pscratch/cosmoflow \\
      --site perlmutter-gpu --account m1234 --time 04:00:00 --batch-sizes 8,32,128 \\
      --optimizers lars --lr-search 0.5,1,2 --study-dir studies/big
      as batch jobs, each of which packs several runs on one node

Learning rates: --lr sgd=0.01,lars=0.2,lamb=0.002@64 gives each optimizer a base rate and the
batch it is meant for (default: the preset's for its own optimizer; else, at batch 64, sgd
0.01, adam and adamw 0.001, lars 0.5, larc 0.01, lamb and nvlamb 0.003). --lr-rule scales it to
every batch: linear, sqrt, none, or linear,lamb=sqrt. --lr-search 0.5,1,2 tries these multiples
in every row with one seed, the better half with --lr-search-seeds, and takes the best by mean
epochs to target. If that is an outermost multiple, all rows of the optimizer try one more, at
most --lr-search-widen times. --optimizers sgd,lars,larc@128 runs larc at batch 128 only.

The same command again, or `hpcbench study resume DIR`, continues where it stopped; with more
batches, optimizers, seeds, placements or multiples the study grows. Each run has cores and
accelerators of its own, here and in a job; none takes more than a node. With --site, `resume`
submits the next round of a search, and then the seeds, when the runs before them have ended;
--wait does so by itself.
Dotted settings such as --train.max_epochs 3 hold for all runs; `hpcbench train APP --list`
shows them.
"""


def add_arguments(parser: Parser) -> None:
    """Options of a convergence study; dotted settings come on top."""
    add_preset_options(parser)
    add_whole(parser, "--samples", 1, MOST_SAMPLES, "number of training samples (data.train_samples)", metavar="N")
    parser.add_argument("--study-dir", required=True, type=Path, metavar="DIR",
                        help="folder of the study, new or to be continued")  # fmt: skip
    axes = parser.add_argument_group("the matrix")
    axes.add_argument("--batch-sizes", required=True, metavar="N,N,...",
                      help="global batches: multiples of train.local_batch_size")  # fmt: skip
    axes.add_argument("--optimizers", required=True, metavar="NAME,...",
                      help="sgd,lars,larc@128: larc at batch 128 only; `hpcbench optimizers` lists them")  # fmt: skip
    add_whole(axes, "--seeds", 1, MOST_SEEDS, "runs of each row (default: 3)")
    axes.add_argument(
        "--placements", metavar="P,...", help="replicate,shard,shard+reshuffle,shard+contiguous (default: replicate)"
    )
    add_whole(axes, "--nodes", 1, MOST_NODES, "nodes that samples are sharded over (default: 4)")
    axes.add_argument("--borrow", metavar="FROM:BATCH,...", help="rows with a borrowed recipe: 32:512 has the rate of "
                      "batch 32 at 512, node:512 optimizer and schedule of preset node")  # fmt: skip
    axes.add_argument("--with", action="append", dest="optimizer_settings", metavar="NAME:KEY=VALUE",
                      help="setting of one optimizer's runs: lars:optim.weight_decay=0.0001; repeatable")  # fmt: skip
    rates = parser.add_argument_group("learning rates")
    rates.add_argument("--lr", metavar="NAME=RATE@BATCH,...", help="base rates; one @BATCH at the end holds for all")
    rates.add_argument("--lr-rule", metavar="RULE", help="linear, sqrt, none; NAME=RULE for one (default: linear)")
    rates.add_argument("--lr-search", metavar="X,X,...", help="multiples of the rule's rate to try (default: 1)")
    add_whole(rates, "--lr-search-seeds", 1, 100, "seeds that the better ones are compared with (default: 2)")
    add_whole(rates, "--lr-search-widen", 0, MOST_WIDENINGS, "how often further multiples are tried while a best is at "
              "the edge (default: 2)")  # fmt: skip
    running = parser.add_argument_group("running")
    add_whole(running, "--jobs", 1, MOST_PER_NODE, "runs at once here (default: one for each accelerator, else for "
              "every two cores, or as many as --parallel.threads); with --site jobs in the queue (default: the site's "
              "most_jobs, else all)")  # fmt: skip
    running.add_argument("--wait", action="store_true", help="stay until all jobs have ended")
    running.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    running.add_argument("--no-estimate", action="store_true", help="start without measuring how long it takes")
    running.add_argument("--retry", action="store_true", help="repeat the runs that failed")
    running.add_argument("--keep", action="store_true", help="keep checkpoints and per-step tables, from which "
                         "`hpcbench report` draws the page of a run")  # fmt: skip
    jobs = parser.add_argument_group("each job")
    jobs.add_argument("--site", default="local", metavar="NAME|FILE",
                      help="`hpcbench sites` lists them (default: local, processes of this machine)")  # fmt: skip
    add_whole(jobs, "--runs-per-job", 1, MOST_PER_NODE, "default: what fits side by side on a node; more run one "
              "after another")  # fmt: skip
    add_job_options(jobs, ranks=False)
    speed = parser.add_argument_group("time to solution on a machine")
    add_real(speed, "--samples-per-s-per-rank", 1e-9, 1e12, "speed of the machine (default: as measured here)")
    add_real(speed, "--parallel-efficiency", 1e-6, 10, "fraction of that speed that many ranks keep (default: 1)")


MATRIX = ("preset", "batch_sizes", "optimizers", "seeds", "placements", "nodes", "borrow", "lr", "lr_rule", "lr_search",
          "lr_search_seeds", "lr_search_widen", "optimizer_settings", "samples_per_s_per_rank", "parallel_efficiency",
          "site", "runs_per_job")  # fmt: skip
"""Options that define the study; the others only say how it is run."""


def run(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Plan, show and run a matrix, or continue it."""
    application = find_application(args.app)
    from hpcbench.study.convergence import run_study
    from hpcbench.study.definition import Study
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.request import Request, define
    from hpcbench.study.runner import ExecutionOptions

    given = {name: value for name in MATRIX if (value := getattr(args, name)) is not None}
    options: dict[str, Any] = {"seeds": 3} | given | {"preset": preset_of(args)}
    command = "hpcbench " + " ".join(shlex.quote(word) for word in sys.argv[1:])
    request = Request(**options, files=args.config, command=command, job=job_request(args, 1))
    folder = StudyFolder(args.study_dir)
    definition = folder.read()
    before = None if definition is None else Study.from_dict(definition, folder.definition)
    samples = {} if args.samples is None else {"data.train_samples": str(args.samples)}
    study = define(application, request, {**overrides, **samples}, before)
    execution = ExecutionOptions(args.jobs, args.wait, args.retry, args.keep, not args.no_estimate)
    return run_study(study, args.study_dir, execution, dry_run=args.dry_run)


CONVERGENCE = Subcommand("convergence", "epochs to the target against batch size", DESCRIPTION, add_arguments, run)


def status(path: Path) -> tuple[str, int]:
    """The plan, with what is done so far, and the exit code."""
    from hpcbench.study import convergence
    from hpcbench.study.folder import StudyFolder

    folder = StudyFolder(path)
    return convergence.status(convergence.read_study(folder), folder)


def resume(path: Path, args: argparse.Namespace) -> int:
    """Make the missing runs, and repeat those that failed."""
    from hpcbench.study.convergence import resume_study
    from hpcbench.study.runner import ExecutionOptions

    return resume_study(path, ExecutionOptions(args.jobs, args.wait, retry=True), dry_run=args.dry_run)


def cancel(path: Path) -> int:
    """End the waiting and running jobs; exit code 2 if one could not be ended."""
    from hpcbench.study.convergence import cancel_study
    from hpcbench.study.folder import StudyFolder, held

    folder = StudyFolder(path)
    with held(folder):  # nobody may submit meanwhile
        return cancel_study(folder)


def report(path: Path) -> None:
    """Write tables, plots and page again."""
    from hpcbench.study.convergence import report as write_report
    from hpcbench.study.folder import StudyFolder

    write_report(StudyFolder(path))


def collect(path: Path, out: Path) -> int:
    """Copy what a repository keeps of the study; returns the number of runs."""
    from hpcbench.study.collect import collect as copy_study
    from hpcbench.study.convergence import read_study
    from hpcbench.study.folder import StudyFolder

    folder = StudyFolder(path)
    read_study(folder)
    return copy_study(folder, out)
