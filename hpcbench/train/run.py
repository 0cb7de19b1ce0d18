"""One training run from start to end: setup, clock, stage, train, finalize. The loop itself is in ``loop``."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from hpcbench.application import Application
from hpcbench.batch.preemption import was_preempted
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import checked_reads
from hpcbench.exits import DONE, TARGET_NOT_REACHED, Aborted, Cause
from hpcbench.measure.job_check import Asked
from hpcbench.measure.power_log import POWER, set_power_aside
from hpcbench.measure.process_age import process_age_s
from hpcbench.results.checkpoint_files import complete, resume_advice
from hpcbench.results.folder_lock import unlock
from hpcbench.results.units import counted
from hpcbench.train.context import RunContext
from hpcbench.train.dataset_staging import drop_caches, stage_dataset
from hpcbench.train.finalize import Ending, Finalizer
from hpcbench.train.hang_watch import HangWatch
from hpcbench.train.loop import Trainer
from hpcbench.train.memory_limits import is_out_of_memory
from hpcbench.train.progress import Bounds
from hpcbench.train.rank_metrics import RankMetrics, node_name
from hpcbench.train.ranks import connect_ranks
from hpcbench.train.setup import has_simulated_nodes, set_up
from hpcbench.train.warm_up import compile_loops, is_due, warm_up
from staging.phase_timer import PhaseTimer
from staging.ranks.abort import OTHERS_FIRST_S, AbortWatcher
from staging.ranks.launch import detect
from staging.ranks.process_exit import cause_of, is_told
from staging.ranks.signals import MARGIN_S, Interrupts, what_ended

ASK_S = 3.0
"""How long Slurm may take to say whether it preempts the job."""


def run_training(
    application: Application, config: RunConfig, run_dir: Path | None, *, interrupts: Interrupts, resume: bool = False,
    again: bool = False, asked: Asked | None = None,
) -> int:  # fmt: skip
    """Train, and leave a run folder. Returns the exit code. ``again``: what an earlier attempt left may be put aside.

    ``interrupts`` must be entered. ``asked`` is what the job asked for; all ranks first check whether they got it.

    Raises ``InputError`` before anything is written, if the input is bad; ``Aborted`` if the run had to stop.
    """
    timer = PhaseTimer(start=process_start())
    with (
        connect_ranks(detect(os.environ), config, asked) as ranks,
        HangWatch(
            ranks.group, ranks.watcher, Bounds(config.parallel.hang_s),
            node=node_name(ranks.launch, has_simulated_nodes(config)),
        ) as watch,
    ):  # fmt: skip
        with report_memory_errors():
            trainer = set_up(
                application, config, ranks, timer, interrupts, run_dir, resume=resume, again=again, watch=watch
            )
        end = Finalizer(trainer)
        ranks.watcher.on_abort = lambda reason: end(
            "aborted", ended_elsewhere(ranks.watcher, reason, stands_in=watch.stands_in)
        )
        try:
            with trainer.checkpoints.writer:
                return execute(trainer, end)
        except BaseException as error:
            watch.stop()
            ended = explain(what_ended(error) or error, trainer.run)
            # An error here may be the consequence of one on another rank, which is then recorded as the reason.
            if is_told(ended) or ranks.watcher.reason_from_elsewhere(OTHERS_FIRST_S) is None:
                end("aborted", if_preempted(ending_of(ended), interrupts, first=trainer.run.is_first))
            raise ended from (None if ended is not error else error.__cause__)
        finally:
            trainer.data.close()
            unlock(trainer.run.folder.path)


@contextmanager
def report_memory_errors() -> Iterator[None]:
    """Turn exhausted memory inside the block into an ``Aborted`` with a message of one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        lower = "lower the size of the model, or start fewer ranks on a node"
        raise Aborted(f"memory ran out before the run began; {lower}") from None


def execute(trainer: Trainer, end: Finalizer) -> int:
    """Run the clock, and everything inside it; returns the exit code."""
    run, data = trainer.run, trainer.data
    timed, epoch = run.config.staging.timed, trainer.state.epoch
    drop_caches(run, data)
    if run.config.measure.probe:
        trainer.rank_metrics.probe(run.device)
    if not timed:
        stage_dataset(run, data, epoch)
    if not run.log.is_finished and (seconds := compile_loops(trainer.step.optimizer)) is not None:
        run.console.say(f"compiled the optimizer's loops in {seconds:.1f} s")
    if is_due(run.config, run.device) and not run.log.is_finished:
        took = warm_up(run, data, trainer.step)
        lacks = f"not warmed up: {run.application.name} has no module `shapes`, which `hpcbench app shapes` writes"
        run.console.say(lacks if took is None else f"compiled and warmed up in {took:.1f} s")
    timer = run.phases.timer
    timer.add("init", timer.other())
    run.log.init_stop()
    if run.log.resumed and run.is_first:
        set_power_aside(run.folder.path)
    run.group.barrier()
    trainer.recorder.begin(on_the_clock=not run.log.is_finished)
    if not run.log.is_finished:
        trainer.rank_metrics.start(run.device)
        log_power(run, trainer.rank_metrics)
    run.log.run_start()
    if timed:
        stage_dataset(run, data, epoch)
    with checked_reads(data.config):
        run.group.together(lambda: run.task.load(data.config))
    with run.interrupts.deferred(), run.phases.steps():
        reached = trainer.train()
        with run.phases.phase("checkpoint"):
            trainer.checkpoints.writer.wait()
        trainer.vote.close()
    run.interrupts.too_late(others=run.launch.world_size > 1)
    if reached:
        end("success", Ending("target"))
        return DONE
    by_steps = trainer.schedule.has_all_steps(trainer.state)
    cause: Cause = "steps" if by_steps else "epochs"
    if run.config.train.target is None:
        end("success", Ending(cause))
        return DONE
    limit = counted(trainer.state.step, "step") if by_steps else counted(trainer.state.epoch, "epoch")
    reason = f"target {run.task.metric} {run.config.train.target} not reached in {limit}"
    end("target_not_reached", Ending(cause, reason))
    run.console.say(reason)
    return TARGET_NOT_REACHED


def log_power(run: RunContext, rank_metrics: RankMetrics) -> None:
    """Write power logs from here on, if they are wanted and can cover the whole run."""
    if not run.config.measure.power:
        return
    if run.log.resumed:
        problem = "a resumed run has none of the time before"
    else:
        problem = rank_metrics.log_power(run.folder.path / POWER)
    if problem:
        run.console.say(f"no power log: {problem}")


def explain(error: BaseException, run: RunContext) -> BaseException:
    """Turn what ended a run into the error that a user reads."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or run.folder.path
        reason = f"no space left on the disk of {where}; free some and {resume_advice(run.folder.checkpoints)}"
        return Aborted(reason, cause="full_disk")
    if is_out_of_memory(error):
        where = "the host" if run.device.type == "cpu" else run.device_name
        smaller = "start a new run with a smaller batch or model"
        advice = f"{resume_advice(run.folder.checkpoints)} where more is free, or {smaller}"
        return Aborted(f"the memory of {where} ran out; {advice if complete(run.folder.checkpoints) else smaller}")
    if isinstance(error, OSError) and error.filename is not None:
        return Aborted(f"{error.filename}: {error.strerror}; fix this and {resume_advice(run.folder.checkpoints)}")
    if isinstance(error, KeyboardInterrupt):
        error = Aborted("signal SIGINT", 130, cause="signal", signal="SIGINT")
    if isinstance(error, Aborted):
        error.speaks = run.is_first
    return error


def ending_of(error: BaseException) -> Ending:
    """How a run ended, from the error that ended it."""
    why = cause_of(error)
    agreed = isinstance(error, Aborted) and error.everywhere
    return Ending(cast("Cause", why["cause"]), str(error) or type(error).__name__, why["signal"], agreed=agreed)


def ended_elsewhere(watcher: AbortWatcher, reason: str, *, stands_in: bool = False) -> Ending:
    """How a run ended on a rank that another rank's error, death or hang ends; see ``Ending`` for ``stands_in``."""
    return Ending(cast("Cause", watcher.cause), reason, watcher.signal, stands_in=stands_in)


def if_preempted(ending: Ending, interrupts: Interrupts, *, first: bool) -> Ending:
    """``ending``, with preemption as its cause if Slurm says so; the first rank asks, while there is time to write.

    If a checkpoint has used up the time to write, there is still the margin.
    """
    asked = first and ending.signal == "SIGTERM" and interrupts.seconds_left() > ASK_S - MARGIN_S
    return replace(ending, cause="preempted") if asked and was_preempted(os.environ, ASK_S) else ending


def process_start() -> float:
    """When this process began, on the clock of ``time.perf_counter``, so that imports count as initialisation."""
    return time.perf_counter() - process_age_s()
