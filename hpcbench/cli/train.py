"""``hpcbench train``: train an application to its target."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import add_run_options, resolve_arguments
from hpcbench.exits import DONE
from staging.errors import InputError
from staging.ranks.mpi import start_early

HELP = "train an application until its target quality"
DESCRIPTION = """\
Train an application to its target and leave a run folder with logs and a report.

  hpcbench train cosmoflow --preset laptop --data.root data/cosmoflow
  hpcbench train deepcam --preset laptop --data.root data/deepcam --optim.lr 0.002
  mpiexec -n 4 hpcbench train cosmoflow --preset laptop --data.root data/cosmoflow
  hpcbench train cosmoflow --preset laptop --run-dir runs/mine --resume

Every setting has a dotted name, such as --train.local_batch_size 4; `--list` shows them
all with their values. Defaults < preset < --config < dotted settings, in any order.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; dotted settings come on top."""
    add_run_options(parser)
    parser.add_argument("--run-dir", type=Path, help="folder of the run (default: runs/APP-PRESET-TIME)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --run-dir from its last checkpoint")
    parser.add_argument("--resume-or-start", action="store_true", help="the same; without a checkpoint, put aside what "
                        "an earlier attempt left, and start (what job scripts do)")  # fmt: skip
    parser.add_argument("--stage-only", action="store_true", help="bring the dataset to the nodes, report, and stop")
    parser.add_argument("--list", action="store_true", help="print every setting, its value and meaning, and stop")


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Resolve the configuration and train, here or on several ranks started here."""
    start_early(os.environ)
    try:
        if args.resume_or_start:
            args.resume = has_checkpoint(args.run_dir)
            if args.resume and has_reached_target(args.run_dir):
                return DONE
        application = find_application(args.app)
        config = resolve_arguments(application, args, overrides, "train")
    except InputError as error:
        refuse(error)
        raise
    if args.list:
        from hpcbench.cli.settings import settings_table

        print(settings_table(config))
        return 0
    devices = config.parallel.devices
    if devices is not None and devices > 1 and "HPCBENCH_SPAWNED" not in os.environ:
        return spawn_ranks(args, application.name, config.preset, devices)
    if args.stage_only:
        from hpcbench.train.stage_only import stage_only

        return stage_only(application, config)
    from hpcbench.train.run import run_training

    return run_training(application, config, args.run_dir, resume=args.resume, again=args.resume_or_start)


def has_reached_target(run_dir: Path) -> bool:
    """Whether an earlier attempt left nothing to do, which the first rank says."""
    from hpcbench.results.run_folder import RunFolder
    from staging.ranks.launch import is_first_rank

    folder = RunFolder(run_dir)
    reached = folder.summary.exists() and folder.read_summary().status == "success"
    if reached and is_first_rank(os.environ):
        print(f"the run in {run_dir} has reached its target; nothing is left to do", flush=True)
    return reached


def has_checkpoint(run_dir: Path | None) -> bool:
    """Whether there is something to resume. Raises ``InputError`` where no folder is named."""
    if run_dir is None:
        raise InputError("--resume-or-start needs --run-dir, the folder of the run")
    from hpcbench.results.run_folder import RunFolder

    return any(RunFolder(run_dir).checkpoints.glob("*.json"))


def refuse(error: InputError) -> None:
    """Tell all ranks of a launcher of bad input that this rank met before it knew them, so that one reports it."""
    from staging.ranks.launch import detect

    launch = detect(os.environ)
    if launch.world_size > 1:
        from hpcbench.train.ranks import connect_ranks

        with connect_ranks(launch, error):
            pass


def spawn_ranks(args: argparse.Namespace, application: str, preset: str, devices: int) -> int:
    """Start the same command once per rank; the run folder is chosen here so that all ranks agree."""
    from hpcbench.parallel.spawn import spawn
    from hpcbench.results.run_folder import default_path

    argv = sys.argv[1:]
    if args.run_dir is None:
        argv = [*argv, "--run-dir", str(default_path(application, preset))]
    return spawn(argv, devices, os.environ)
