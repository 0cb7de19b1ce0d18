"""``hpcbench study``: matrices of runs, what they found, and how they stand."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.application import find_application, installed
from hpcbench.cli import scaling
from hpcbench.suggest import suggest
from staging.errors import InputError
from staging.number_options import MOST_PER_NODE, add_real, add_whole

HELP = "run a matrix of trainings: convergence against batch, speed against nodes"
DESCRIPTION = """\
Speed: the same training on more and more nodes, as batch jobs or on this machine.

  hpcbench study strong cosmoflow --preset mlperf --data.root /pscratch/cosmoflow \\
      --site perlmutter-gpu --account m1234 --nodes 8,16,32 --steps 200 --study-dir studies/strong
      the same global batch on every size; weak keeps the batch of a rank, throughput runs
      instances of --instance-nodes beside one another. Shows the plan with its node-hours,
      then submits; --dry-run stops before. Without --site the nodes are simulated here.
  hpcbench study status DIR                 done, running, waiting, failed
  hpcbench study resume DIR                 submit what is missing, and again what failed
  hpcbench study report DIR --convergence CDIR --runs 10
      table, plots and page, with epochs(B) of a convergence study and a proposal table

  --vary tier=shared,node,memory --vary data.train_samples=4096,65536 measures the storage
  tiers by dataset size; --vary parallel.overlap=true,false, parallel.bucket_bytes=1048576,
  26214400 or data.prefetch=1,4,16 what communication and reading cost.

Convergence: how many epochs, samples and steps a model needs to its target as the batch
grows, for several optimizers and seeds. One process computes what the ranks of a large
machine would.

  hpcbench study convergence cosmoflow --preset laptop --data.root data/cosmoflow \\
      --batch-sizes 8,32,128 --optimizers sgd,lars,lamb --seeds 3 --study-dir studies/mine
      shows the plan with an estimate of time, then runs it; --dry-run stops before
  hpcbench study report studies/mine        tables, plots and page again, from its run folders
  hpcbench study collect studies/mine --out docs/mine     a small copy without the machine's names
  hpcbench study published DIR              the fit of the published reference points

Learning rates: --lr sgd=0.01,lars=0.2,lamb=0.002@64 gives each optimizer a base rate and the
batch it is meant for (default: the preset's for its own optimizer; else, at batch 64, sgd
0.01, adam and adamw 0.001, lars 0.5, larc 0.01, lamb and nvlamb 0.003). --lr-rule brings it to
every batch: linear, sqrt, none, or linear,lamb=sqrt. --lr-search 0.5,1,2 tries these
multiples in every row, with one run each, and takes the best.

The same command again goes on where it stopped; with more batches, optimizers, seeds,
placements or multiples the study grows. Dotted settings hold for all runs.
"""
KINDS = ("convergence", *scaling.KINDS, "status", "resume", "report", "collect", "published")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the kinds of studies."""
    parser.add_argument("kind", metavar="|".join(KINDS))
    parser.add_argument("subject", metavar="APP|DIR", help="application; or, to report, the folder of a study")
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to collect into")
    parser.add_argument("--study-dir", type=Path, metavar="DIR", help="folder of the study, new or to go on with")
    axes = parser.add_argument_group("convergence: the matrix")
    axes.add_argument("--batch-sizes", metavar="N,N,...", help="global batches: multiples of train.local_batch_size")
    axes.add_argument("--optimizers", metavar="NAME,...", help="sgd,lars,lamb,...; `hpcbench optimizers` lists them")
    add_whole(axes, "--seeds", 1, 10_000, "runs of each row (default: 3)")
    axes.add_argument("--placements", metavar="P,...", help="replicate,shard,shard+reshuffle (default: replicate)")
    axes.add_argument("--nodes", metavar="N,N,...", help="sizes of a scaling study; of a convergence study the number "
                      "of nodes that samples are sharded over (default: 4)")  # fmt: skip
    axes.add_argument("--borrow", metavar="FROM:BATCH,...", help="rows with another's recipe: 32:512 has the rate of "
                      "batch 32 at 512, node:512 optimizer and schedule of preset node")  # fmt: skip
    rates = parser.add_argument_group("convergence: learning rates")
    rates.add_argument("--lr", metavar="NAME=RATE@BATCH,...", help="base rates; one @BATCH at the end holds for all")
    rates.add_argument("--lr-rule", metavar="RULE", help="linear, sqrt, none; NAME=RULE for one (default: linear)")
    rates.add_argument("--lr-search", metavar="X,X,...", help="multiples of the rule's rate to try (default: 1)")
    rates.add_argument("--with", action="append", dest="own", metavar="NAME:KEY=VALUE",
                       help="setting of one optimizer's runs: lars:optim.weight_decay=0.0001; repeatable")  # fmt: skip
    ways = parser.add_argument_group("running")
    add_whole(
        ways,
        "--jobs",
        1,
        MOST_PER_NODE,
        "runs at once (default: half the cores; of scaling studies 1 here, all in a queue)",
    )
    ways.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    ways.add_argument("--no-estimate", action="store_true", help="start without measuring how long it takes")
    ways.add_argument("--retry", action="store_true", help="run again what crashed")
    scaling.add_arguments(parser)
    ways.add_argument("--keep", action="store_true", help="keep checkpoints, per-step tables and pages of the runs")
    speed = parser.add_argument_group("convergence: time to solution on a machine")
    add_real(speed, "--samples-per-s-per-rank", 1e-9, 1e12, "its speed (default: as measured here)")
    add_real(speed, "--parallel-efficiency", 1e-6, 10, "part of it that is kept (default: 1)")


MATRIX = ("preset", "batch_sizes", "optimizers", "seeds", "placements", "nodes", "borrow", "lr", "lr_rule", "lr_search",
          "own", "samples_per_s_per_rank", "parallel_efficiency")  # fmt: skip
MATRIX_ALONE = tuple(name for name in MATRIX if name not in ("preset", "nodes"))
TRUE_ALONE = ("keep", "no_estimate")
"""Switches of convergence studies."""
OWN_NAMES = {"own": "with"}
ALSO = {"resume": ("wait", *scaling.OF_PAGE), "report": scaling.OF_PAGE}
"""Options of scaling studies that go with a folder."""


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Run a study, or report on one."""
    if args.kind not in KINDS:
        raise InputError(f"unknown kind of study '{args.kind}'; {suggest(args.kind, list(KINDS))}")
    if args.kind in scaling.KINDS:
        refuse(args, (*MATRIX_ALONE, *TRUE_ALONE), "convergence studies")
        return scaling.scaling(args, overrides)
    if args.kind == "convergence":
        refuse(args, scaling.OPTIONS, "scaling studies")
        for option in scaling.job_options(args):
            raise InputError(f"{option} is for scaling studies, not study convergence; leave it out")
        return convergence(args, overrides)
    return describe(args, overrides)


def refuse(args: argparse.Namespace, names: Sequence[str], whose: str) -> None:
    """Refuse options of another kind of study."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value is not False:
            raise InputError(f"{option_of(name)} is for {whose}, not study {args.kind}; leave it out")


def option_of(name: str) -> str:
    """The option that sets an argument: ``--lr-rule`` of ``lr_rule``, ``--with`` of ``own``."""
    return f"--{OWN_NAMES.get(name, name).replace('_', '-')}"


def convergence(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Epochs to target against batch size."""
    for option in ("batch_sizes", "optimizers", "study_dir"):
        if getattr(args, option) is None:
            raise InputError(f"study convergence needs --{option.replace('_', '-')}; see hpcbench study --help")
    application = find_application(args.subject)
    from hpcbench.study.convergence import Ways, run_study
    from hpcbench.study.plan import processes_per_run
    from hpcbench.study.request import Request, define

    given = {name: value for name in MATRIX if (value := getattr(args, name)) is not None}
    if "nodes" in given:
        given["nodes"] = one_number("--nodes", given["nodes"])
    options: dict[str, Any] = {"preset": "smoke", "seeds": 3} | given
    command = "hpcbench " + " ".join(shlex.quote(word) for word in sys.argv[1:])
    study = define(application, Request(**options, files=args.config, command=command), overrides)
    jobs, threads = shared_cores(args.jobs, processes_per_run(study))
    ways = Ways(jobs, threads, keep=args.keep, retry=args.retry, estimate=not args.no_estimate)
    return run_study(study, args.study_dir, ways, dry_run=args.dry_run)


def one_number(option: str, text: str) -> int:
    """A single number. Raises ``InputError``."""
    if not text.isdecimal():
        raise InputError(f"{option} ({text}) must be one number for study convergence")
    return int(text)


def shared_cores(jobs: int | None, processes: int) -> tuple[int, int]:
    """How many runs of so many processes at once, and the threads of each process."""
    from hpcbench.parallel.threads import cpu_quota

    cores = min(len(os.sched_getaffinity(0)), int(cpu_quota() or sys.maxsize) or 1)
    if jobs is None:
        jobs = max(1, cores // max(2, processes))
    if jobs < 1:
        raise InputError(f"--jobs ({jobs}) must be at least 1")
    return jobs, max(1, cores // (jobs * processes))


def describe(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the pages of a study again, or say how it stands."""
    fixed = [name for name in (*MATRIX, *scaling.OPTIONS, "study_dir") if name not in ALSO.get(args.kind, ())]
    extra = [option_of(name) for name in fixed if getattr(args, name) is not None] + scaling.job_options(args)
    if extra or overrides:
        extra += [f"--{name}" for name in overrides]
        raise InputError(f"study {args.kind} takes the folder of a study alone, not {extra[0]}")
    if args.kind == "published":
        return published(Path(args.subject))
    if args.subject in installed() and not Path(args.subject).is_dir():
        raise InputError(f"study {args.kind} takes the folder of a study, not the application {args.subject}")
    from hpcbench.study.convergence import read_outcomes, read_study, report
    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.table import counts, plan_table, size

    folder = StudyFolder(Path(args.subject))
    if (folder.read() or {}).get("kind") in scaling.KINDS:
        return scaling.describe(args)
    study = read_study(folder)
    refuse(args, ALSO.get(args.kind, ()), "scaling studies")
    if args.kind == "resume":
        raise InputError(f"{folder.path} is a convergence study: its own command goes on with it (see study.json)")
    if args.kind == "collect":
        from hpcbench.study.collect import collect

        if args.out is None:
            raise InputError("study collect: say where to with --out DIR")
        print(f"{args.out}: {collect(folder, args.out)} runs")
        return 0
    if args.kind == "report":
        report(folder)
        return 0
    outcomes = read_outcomes(study, folder)
    ends = ", ".join(f"{count} {name}" for name, count in counts(study, outcomes).items())
    print(f"{size(study)}\n\n{plan_table(study, outcomes)}\n\nruns: {ends}")
    return 0


def published(folder: Path) -> int:
    """Put the published reference points through the fit: tables on the terminal, a picture in ``folder``."""
    from hpcbench.study.published import fit_table, point_table, write_published

    print(f"{fit_table()}\n{point_table()}\n{write_published(folder)}")
    return 0
