"""``hpcbench train``: train an application to its target."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import find_application
from hpcbench.cli.arguments import add_run_options, resolve_arguments
from hpcbench.cli.recipe_from import add_recipe_option, borrow, settings_of
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.frame_lookups import cheap_frame_lookups
from staging.bounds import shown
from staging.cli import said_once
from staging.errors import InputError
from staging.ranks.launch import detect, is_first_rank
from staging.ranks.mpi import start_early
from staging.ranks.signals import Interrupts, warning_time
from staging.ranks.unwatched import unwatched

if TYPE_CHECKING:  # importing them here would make `hpcbench --help` slow
    from hpcbench.application import Application
    from hpcbench.config.schema import RunConfig
    from hpcbench.measure.job_check import Asked
    from hpcbench.results.summary import Summary

DESCRIPTION = """\
Train an application to its target and leave a run folder with logs and a report.

  hpcbench train cosmoflow --preset laptop --data.root data/cosmoflow
  hpcbench train deepcam --preset laptop --data.root data/deepcam --optim.lr 0.002
  mpiexec -n 4 hpcbench train cosmoflow --preset laptop --data.root data/cosmoflow
  hpcbench train cosmoflow --preset laptop --data.root data/cosmoflow --run-dir runs/mine
  hpcbench train cosmoflow --run-dir runs/mine --resume      continues it where it was stopped
  hpcbench train cosmoflow --recipe-from result_1.txt --data.root data/cosmoflow
      trains with the optimizer, schedule and global batch of an official log

Every setting has a dotted name, such as --train.local_batch_size 4; `--list` shows them
all with their values. Defaults < preset < --config < dotted settings, in any order.
"""
KILLED_S = 5.0
"""How long processes of a run that was killed may take to end before another run is refused its folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; dotted settings come on top."""
    add_run_options(parser)
    add_recipe_option(parser)
    parser.add_argument("--run-dir", type=Path, help="folder of the run (default: runs/APP-PRESET-TIME)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --run-dir from its last checkpoint")
    parser.add_argument("--resume-or-start", action="store_true", help="the same; without a checkpoint, put aside what "
                        "an earlier attempt left, and start (what job scripts do)")  # fmt: skip
    parser.add_argument("--check-job", metavar="ranks=N,...", help="check first, on all ranks, that the job got its "
                        "ranks, nodes, cores, gpus, local_gib, and can write to staging.destination; end within a "
                        "minute if not, as `hpcbench doctor --job` does (what job scripts do)")  # fmt: skip
    parser.add_argument("--hold", type=Path, help="for job scripts: the job's own hold on the run folder")
    parser.add_argument("--stage-only", action="store_true", help="bring the dataset to the nodes, report, and stop")
    parser.add_argument("--list", action="store_true", help="print every setting, its value and meaning, and stop")


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Resolve the configuration and train, here or on several ranks started here."""
    asked = said_once(lambda: asked_for(args.check_job))
    # MPICH handles SIGUSR1 itself from MPI_Init on, and passes it on to the handler from before. That must be ours
    # while PyTorch is imported, which takes a minute when many ranks do it at once.
    with Interrupts(said_once(warning_time)) as interrupts:
        with unwatched(said_once(partial(detect, os.environ))):
            start_early(os.environ)
            training = configured(args, overrides)
            if isinstance(training, int):
                return training
            application, config = training
            starts_ranks = (config.parallel.devices or 1) > 1 and "HPCBENCH_SPAWNED" not in os.environ
            if not starts_ranks:
                with cheap_frame_lookups():
                    from hpcbench.train.run import run_training
                    from hpcbench.train.stage_only import stage_only
            interrupts.check()  # an import may have swallowed the error
        if not starts_ranks:
            if args.stage_only:
                return stage_only(application, config, interrupts)
            if asked is not None:
                asked = replace(asked, local=config.staging.destination)
            return run_training(
                application, config, args.run_dir, interrupts=interrupts, resume=args.resume,
                again=args.resume_or_start, asked=asked,
            )  # fmt: skip
    assert config.parallel.devices is not None
    return spawn_ranks(config.parallel.devices)


def configured(args: argparse.Namespace, overrides: dict[str, str]) -> tuple[Application, RunConfig] | int:
    """What the command line asks for, or the exit code if that is no training or one that an earlier attempt finished.

    Raises ``InputError`` on all ranks.
    """
    try:
        check_run_dir(args.run_dir)
        check_hold(args)
        if args.resume_or_start:
            args.resume = has_checkpoint(args.run_dir)
        application = find_application(args.app)
        config = configuration(application, args, overrides)
        code = exit_code_if_finished(args.run_dir, config) if args.resume_or_start and args.resume else None
        if code is not None:
            return code
        if not args.list:
            from hpcbench.parallel.machine_limits import check_machine

            check_machine(config, starts_ranks="HPCBENCH_SPAWNED" not in os.environ)
    except InputError as error:
        refuse(error)
        raise
    if args.list:
        from hpcbench.cli.settings import settings_table

        print(settings_table(config))
        return DONE
    return application, config


def configuration(application: Application, args: argparse.Namespace, overrides: dict[str, str]) -> RunConfig:
    """The configuration that the command line asks for; a borrowed recipe is named once."""
    recipe = borrow(application, args, overrides)
    if recipe is None:
        return resolve_arguments(application, args, overrides, "train")
    from hpcbench.submission.borrowed_recipe import recipe_lines

    launch = detect(os.environ)
    before = resolve_arguments(application, args, {**recipe.settings, **overrides}, "train")
    starts = before.parallel.devices if "HPCBENCH_SPAWNED" not in os.environ else None
    borrowed = settings_of(recipe, before, starts or launch.world_size, overrides)
    if launch.rank == 0 and "HPCBENCH_SPAWNED" not in os.environ:
        print("\n".join(recipe_lines(recipe, borrowed, overrides)), flush=True)
    return resolve_arguments(application, args, {**borrowed, **overrides}, "train")


def asked_for(text: str | None) -> Asked | None:
    """What the job asked for, by ``--check-job``. Raises ``InputError`` if the launcher reports other ranks."""
    if text is None:
        return None
    from hpcbench.measure.job_check import check_ranks, parse_asked

    asked = parse_asked("--check-job", text)
    check_ranks(asked, detect(os.environ))
    return asked


def check_run_dir(run_dir: Path | None) -> None:
    """Raise ``InputError`` for a run folder that the system refuses to look into, such as one with too long a name."""
    if run_dir is None:
        return
    try:
        (run_dir / "holds").stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # new, or a file that is refused later
    except OSError as error:
        problem = f"run folder {shown(run_dir)} cannot be looked at ({error.strerror})"
        raise InputError(f"{problem}; give another --run-dir") from None


def check_hold(args: argparse.Namespace) -> None:
    """Raise ``InputError`` on the first rank if another job or run works in the folder of the run.

    Jobs take turns by their holds: one may begin before the last process of a killed attempt is gone.
    """
    if args.run_dir is None or args.list or not is_first_rank(os.environ):
        return
    from hpcbench.results.folder_lock import is_locked

    if args.hold is None and is_locked(args.run_dir, KILLED_S):
        raise InputError(
            f"another run works in {shown(args.run_dir)}; wait for its end, or start a new run with another --run-dir"
        )
    if not (args.run_dir / "holds").exists():
        return
    from hpcbench.batch.holding import HeldError, check_free

    try:
        check_free(args.run_dir, args.hold)
    except HeldError as error:
        cancel = f"hpcbench jobs --cancel {shlex.quote(str(args.run_dir))}"
        raise InputError(f"{error}; wait for its end, or cancel it: {cancel}") from None


def exit_code_if_finished(run_dir: Path, config: RunConfig) -> int | None:
    """The exit code of earlier attempts if they left nothing to do for ``config``; the first rank says so.

    ``None`` if something is left to do.
    """
    from hpcbench.results.run_folder import RunFolder

    folder = RunFolder(run_dir)
    summary = folder.read_summary() if folder.summary.exists() else None
    if summary is None or summary.status == "aborted" or not summary.complete or asks_for_more(config, summary):
        return None
    reached = summary.status == "success"
    if is_first_rank(os.environ):
        end = "made its epochs" if config.train.target is None else "reached its target"
        end = end if reached else "made its epochs and not reached its target"
        print(f"the run in {run_dir} has {end}; nothing is left to do", flush=True)
    return DONE if reached else TARGET_NOT_REACHED


def asks_for_more(config: RunConfig, summary: Summary) -> bool:
    """Whether ``config`` asks a run that came to its end to reach another target, or to train longer."""
    train, best, lower = config.train, summary.best, summary.better == "lower"
    longer = summary.steps < train.max_steps if train.max_steps is not None else summary.epochs < train.max_epochs
    if train.target is None:
        return longer
    met = best is not None and (best <= train.target if lower else best >= train.target)
    return not met if summary.status == "success" else met or longer


def has_checkpoint(run_dir: Path | None) -> bool:
    """Whether there is something to resume. Raises ``InputError`` if no folder is named."""
    if run_dir is None:
        raise InputError("--resume-or-start needs --run-dir, the folder of the run")
    from hpcbench.results.checkpoint_files import complete
    from hpcbench.results.run_folder import RunFolder

    return bool(complete(RunFolder(run_dir).checkpoints))


def refuse(error: InputError) -> None:
    """Tell all ranks of a launcher about bad input that this rank found before it knew them, so that one reports it."""
    launch = detect(os.environ)
    if launch.world_size > 1:
        from hpcbench.train.ranks import connect_ranks

        with connect_ranks(launch, error):
            pass


def spawn_ranks(devices: int) -> int:
    """Start the same command once per rank."""
    from hpcbench.parallel.spawn import spawn

    return spawn(sys.argv[1:], devices, os.environ)
