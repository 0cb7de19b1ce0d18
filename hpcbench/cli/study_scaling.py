"""``hpcbench study strong|weak|throughput``: the same training on more and more nodes."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import find_application
from hpcbench.cli.submit import add_job_options, job_request
from hpcbench.config.schema import LARGEST_SEED, MOST_SAMPLES, MOST_STEPS
from staging.errors import InputError
from staging.number_options import MOST_NODES, add_real, add_whole

if TYPE_CHECKING:
    from hpcbench.study.scaling.report import Extras
    from hpcbench.study.scaling.study import Ways

KINDS = ("strong", "weak", "throughput")
OF_PAGE = ("convergence", "runs", "contingency", "min_efficiency")
"""Options of the page and its proposal table."""
OPTIONS = ("site", "repeats", "steps", "global_batch_size", "instance_nodes", "vary", "no_stage", "wait", "seed",
           *OF_PAGE)  # fmt: skip
"""Options that other kinds of studies do not have."""
OF_JOBS = {"modules": "module", "environment": "env"}
"""Options of a job that are not called as what they ask for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of scaling studies; ``--nodes``, ``--jobs`` and others are shared."""
    ladder = parser.add_argument_group("scaling: the ladder")
    ladder.add_argument("--site", metavar="NAME|FILE", help="where it runs (default: local, where nodes are simulated)")
    add_whole(ladder, "--repeats", 1, 10_000, "runs of each point (default: 3)")
    add_whole(ladder, "--steps", 1, MOST_STEPS, "train for N steps instead of to the target")
    add_whole(
        ladder,
        "--global-batch-size",
        1,
        MOST_SAMPLES,
        "strong: of every size (default: that of train.local_batch_size on the smallest)",
    )
    add_whole(ladder, "--instance-nodes", 1, MOST_NODES, "throughput: nodes of each instance")
    ladder.add_argument("--vary", action="append", metavar="KEY=V,V,...", help="a further axis: any setting, or tier="
                        "shared,node,memory; repeatable")  # fmt: skip
    add_whole(ladder, "--seed", 0, LARGEST_SEED, "of the first run (default: 1)")
    ladder.add_argument("--no-stage", action="store_true", default=None, help="read the dataset where it is")
    ladder.add_argument("--wait", action="store_true", default=None, help="stay until all jobs have ended")
    joined = parser.add_argument_group("scaling: the page")
    joined.add_argument("--convergence", type=Path, metavar="DIR", help="convergence study to take epochs(B) from")
    add_whole(joined, "--runs", 1, 10**6, "trainings that the proposal table is for (default: 5)")
    add_real(joined, "--contingency", 0, 100, "part of the hours that the proposal table adds (default: 0.15)")
    add_real(joined, "--min-efficiency", 0, 1, "sizes below are not recommended in it (default: 0.7)")
    add_job_options(parser.add_argument_group("scaling: each job"))


def scaling(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Plan, show and run a ladder, or go on with it."""
    for option in ("nodes", "study_dir"):
        if getattr(args, option) is None:
            raise InputError(f"study {args.kind} needs --{option.replace('_', '-')}; see hpcbench study --help")
    application = find_application(args.subject)
    from hpcbench.study.scaling.request import ScalingRequest, define
    from hpcbench.study.scaling.study import run_study

    asked = ScalingRequest(
        mode=args.kind, preset=args.preset or "smoke", site=args.site or "local", nodes=args.nodes,
        request=job_request(args, 1), repeats=given(args.repeats, 3), steps=args.steps,
        global_batch_size=args.global_batch_size, instance_nodes=args.instance_nodes, vary=tuple(args.vary or ()),
        files=tuple(args.config), stages=not args.no_stage, seed=given(args.seed, 1),
        command="hpcbench " + " ".join(shlex.quote(word) for word in sys.argv[1:]),
    )  # fmt: skip
    study = define(application, asked, overrides)
    return run_study(study, args.study_dir, ways(args), extras(args), dry_run=args.dry_run)


def job_options(args: argparse.Namespace) -> list[str]:
    """The options of a job that the command line has."""
    from hpcbench.batch.job import JobRequest

    asked, plain = job_request(args, 1), JobRequest()
    names = [each.name for each in fields(JobRequest) if getattr(asked, each.name) != getattr(plain, each.name)]
    return [f"--{OF_JOBS.get(name, name).replace('_', '-')}" for name in names]


def given(value: int | None, default: int) -> int:
    """``value``, where the command line has it."""
    return default if value is None else value


def ways(args: argparse.Namespace) -> Ways:
    """How the study is run."""
    from hpcbench.study.scaling.study import Ways

    return Ways(args.jobs, bool(args.wait), bool(args.retry))


def extras(args: argparse.Namespace) -> Extras:
    """What the page joins."""
    from hpcbench.study.scaling.proposal import Campaign
    from hpcbench.study.scaling.report import Extras

    names = [each.name for each in fields(Campaign)]
    asked = {name: value for name in names if (value := getattr(args, name)) is not None}
    return Extras(args.convergence, Campaign(**asked))


def describe(args: argparse.Namespace) -> int:
    """``status``, ``resume``, ``report`` and ``collect`` of a scaling study."""
    from dataclasses import replace

    from hpcbench.study.folder import StudyFolder
    from hpcbench.study.scaling import study as whole
    from hpcbench.study.scaling.request import check_data

    folder = StudyFolder(Path(args.subject))
    study = whole.read_study(folder)
    if args.kind == "status":
        print(whole.status(study, folder))
    elif args.kind == "resume":
        check_data(study)
        again = replace(ways(args), retry=True)
        return whole.run_study(study, folder.path, again, extras(args), dry_run=args.dry_run)
    elif args.kind == "collect":
        from hpcbench.study.scaling.collect import collect

        if args.out is None:
            raise InputError("study collect: say where to with --out DIR")
        print(f"{args.out}: {collect(study, folder, args.out)} runs")
    else:
        from hpcbench.study.scaling.report import report

        report(study, folder, extras(args))
    return 0
