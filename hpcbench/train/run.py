"""One training run from first to last: open, clock, stage, train, close. The loop itself is in ``loop``."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.exits import DONE, TARGET_NOT_REACHED, Aborted
from hpcbench.train.close import close_run
from hpcbench.train.context import Run
from hpcbench.train.interrupt import Interrupts
from hpcbench.train.loop import train
from hpcbench.train.open import open_run
from hpcbench.train.parts import has_all_steps
from hpcbench.train.ranks import Ranks, connect_ranks
from hpcbench.train.stage import drop_caches, stage_dataset
from staging.ranks.launch import detect
from staging.spans import Spans


def run_training(
    application: Application, config: RunConfig, run_dir: Path | None, *, resume: bool = False, again: bool = False
) -> int:
    """Train, and leave a run folder. Returns the exit code. ``again``: what an earlier attempt left may be put aside.

    Raises ``InputError`` before anything is written, if the input is bad; ``Aborted`` when the run had to stop.
    """
    spans = Spans(start=process_start())
    with Interrupts() as interrupts, connect_ranks(detect(os.environ), config) as ranks:
        run = open_run(application, config, ranks, spans, interrupts, run_dir, resume=resume, again=again)
        ranks.watcher.on_abort = lambda reason: close_run(run, "aborted", reason)
        try:
            return execute(run, ranks)
        except BaseException as error:
            ended = explain(error, run)
            close_run(run, "aborted", str(ended) or type(ended).__name__)
            raise ended from (None if ended is not error else error.__cause__)


def execute(run: Run, ranks: Ranks) -> int:
    """The clock, and everything inside it."""
    drop_caches(run)
    run.own.start(run.device, run.config.measure.probe)
    if not run.config.staging.timed:
        stage_dataset(run, ranks.watcher)
    spans = run.phases.spans
    spans.add("init", spans.other())
    run.log.init_stop()
    run.group.barrier()
    run.log.run_start()
    if run.config.staging.timed:
        stage_dataset(run, ranks.watcher)
    ranks.together(run.task.load)
    with run.interrupts.deferred():
        reached = run.already_reached() or train(run)
    run.interrupts.too_late(others=run.launch.world_size > 1)
    if reached or run.config.train.target is None:
        close_run(run, "success")
        return DONE
    limit = f"{run.state.step} steps" if has_all_steps(run) else f"{run.state.epoch} epochs"
    reason = f"target {run.task.metric} {run.config.train.target} not reached in {limit}"
    close_run(run, "target_not_reached", reason)
    run.console.say(reason)
    return TARGET_NOT_REACHED


def explain(error: BaseException, run: Run) -> BaseException:
    """Turn what ended a run into the error that a user reads."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or run.folder.path
        return Aborted(f"no space left on the disk of {where}; free some and resume with --resume")
    if isinstance(error, OSError) and error.filename is not None:
        return Aborted(f"{error.filename}: {error.strerror}; see to it and resume with --resume")
    if isinstance(error, KeyboardInterrupt):
        error = Aborted("signal SIGINT", 130)
    if isinstance(error, Aborted):
        error.speaks = run.is_first
    return error


def process_start() -> float:
    """When this process began, on the clock of ``time.perf_counter``, so that imports count as initialisation."""
    import psutil

    return time.perf_counter() - (time.time() - psutil.Process().create_time())
