"""Ends a run: stops the clock, and writes the summary, the data of the pictures, and the report."""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from hpcbench.data.files import SPLITS, files_of_split
from hpcbench.data.simulated_set import record_text
from hpcbench.exits import Cause
from hpcbench.measure.flops import FlopCount, count_flops
from hpcbench.measure.slow_nodes import slow_nodes
from hpcbench.phase_names import PHASES
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.stored_bytes import files_bytes, folder_bytes
from hpcbench.results.summary import Status, Summary
from hpcbench.results.units import counted_epochs
from hpcbench.train.attempt_recorder import started_at
from hpcbench.train.console import Console
from hpcbench.train.context import RunContext
from hpcbench.train.evaluate import evaluate, keep_examples
from hpcbench.train.loop import Trainer
from hpcbench.train.targets import epochs_to_target
from staging.errors import InputError
from staging.ranks.process_exit import leave_at_exit, within
from staging.ranks.signals import Interrupted

if TYPE_CHECKING:  # drawing needs packages that training does not
    from hpcbench.results.report import Drawings


@dataclass(frozen=True)
class Ending:
    """Why a run ended: for programs, and in words."""

    cause: Cause
    reason: str = ""
    signal: str | None = None
    """Name of the signal, if that is the cause."""
    agreed: bool = False
    """Whether all ranks end together for this cause, at the same point of the run."""
    stands_in: bool = False
    """Whether this rank writes the summary in place of rank 0, which hangs."""


LAST_S = 20.0
"""How long the code that ends the process waits for the summary."""


class Finalizer:
    """Ends a run: the clock first, then everything that a reader of the run folder needs.

    Only the first call counts: an error elsewhere may end the run from another thread.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._called = threading.Lock()
        self._done = threading.Event()

    def __call__(self, status: Status, ending: Ending) -> None:
        """Finalize a run that has ended so. A second caller, which ends the process next, waits for the first."""
        if not self._called.acquire(blocking=False):
            self._done.wait(LAST_S)
            return
        try:
            self._end(status, ending)
        finally:
            self._done.set()

    def _end(self, status: Status, ending: Ending) -> None:
        with contextlib.suppress(OSError):
            self.trainer.step.observers.close()
        self.trainer.stop_clock(status, ending.cause, ending.reason)
        self.trainer.run.console.stop_epoch()
        if status != "aborted":
            finalize_complete(self.trainer, status, ending)
        else:
            finalize_aborted(self.trainer, ending)


def finalize_complete(trainer: Trainer, status: Status, ending: Ending) -> None:
    """Write arrays, summary and page of a run that reached its end; collective."""
    run, data, step = trainer.run, trainer.data, trainer.step
    with run.phases.timer.span("finalize"):
        if run.is_first:  # what follows waits for all ranks, and one may be lost or hang
            run.folder.write_summary(replace(summarize(trainer, status, ending, None), complete=False))
        trainer.recorder.collect(at_end=True)
        # A pass involves all ranks that share samples, or parameters.
        together = run.mesh.data_rank == 0 or run.config.parallel.shard_states
        examples = keep_examples(run.task, data, step) if together else {}
        if not len(trainer.scores) and not trainer.state.epoch_losses:  # a run that had ended before it was resumed
            trainer.scores, _ = evaluate(run, data, step)
        if not run.is_first:
            return
        save_arrays(run.folder, run.task.columns, trainer.scores, examples)
        run.folder.sync()
        flops = flops_of_sample(trainer)
        run.progress.alone = True
        summary = replace(summarize(trainer, status, ending, flops), complete=False)
        run.folder.write_summary(summary)
        if run.config.train.baselines and run.application.has("baselines"):
            run.console.say("computing the baselines")
            baselines = run.application.module("baselines").baselines(data.config)
            summary.baselines = baselines
            run.folder.write_summary(summary)
        run.folder.release()
        drawn = draw(run)
        sizes = stored_bytes(run)
    # The figures do not include the time of what follows; it may stand still for as long.
    run.progress.enter("finalize")
    summary = replace(summarize(trainer, status, ending, flops), baselines=summary.baselines, **sizes)
    run.folder.write_summary(summary)
    write_page(run.folder, run.console, drawn)
    run.console.say(f"{outcome(summary)}\nrun folder: {run.folder.path}")


def flops_of_sample(trainer: Trainer) -> FlopCount | None:
    """The operations for a sample; ``None``, and a line that says so, if the first sample cannot be read any more."""
    try:
        inputs, _ = trainer.data.first_batch()
    except (InputError, OSError) as error:  # the run itself has ended well
        trainer.run.console.say(f"operations of a sample are not counted: {error}")
        return None
    return count_flops(trainer.step.whole_model, inputs[:1])


def finalize_aborted(trainer: Trainer, ending: Ending) -> None:
    """Write the summary of a run that had to stop, and its page if all ranks stop together."""
    run = trainer.run
    with contextlib.suppress(OSError):
        if ending.agreed:
            with run.phases.timer.span("finalize"):
                trainer.recorder.collect(at_end=True)
        if not (run.is_first or ending.stands_in):
            return
        run.folder.write_summary(summarize(trainer, "aborted", ending, None))
        run.folder.release()
        if ending.agreed:
            with run.phases.timer.span("finalize"):
                drawn = draw_in_time(run, trainer.seconds_left())
            run.folder.write_summary(summarize(trainer, "aborted", ending, None))
            write_page(run.folder, run.console, drawn)


def summarize(trainer: Trainer, status: Status, ending: Ending, flops: FlopCount | None) -> Summary:
    """The run in numbers, over all attempts up to now."""
    run, data, step, state = trainer.run, trainer.data, trainer.step, trainer.state
    config = run.config
    attempts = trainer.recorder.record(state.step, ending.cause, stands_in=ending.stands_in)
    joules, source, note = attempts.energy
    phases = attempts.phases_s
    stall = {"checkpoint_longest_stall_s": attempts.longest_stall_s}
    measured: dict[str, Any] = {**attempts.checkpoint, **stall, **step.observers.summary(), **arrangement(run)}
    return Summary(
        application=run.application.name,
        title=run.application.title,
        preset=config.preset,
        status=status,
        cause=ending.cause,
        signal=ending.signal,
        reason=ending.reason,
        seed=run.seed,
        metric=run.task.metric,
        better=run.task.better,
        target=config.train.target,
        best=state.best,
        epochs=state.evaluated,
        steps=state.step,
        samples=state.samples,
        checkpoints=len(attempts.written),
        evaluations=attempts.evaluations,
        epochs_to_target=epochs_to_target(config, run.task, state),
        time_to_solution_s=run.log.elapsed_s(),
        wall_s=attempts.wall_s,
        gaps_s=attempts.gaps_s,
        phases_s={name: phases.get(name, 0.0) for name in PHASES},
        peak_lr=config.optim.lr,
        train_samples=len(data.training),
        validation_samples=len(data.validation),
        simulated_data=record_text(config.data.root),
        samples_per_s=throughput(state.history),
        warm_samples_per_s=warm_throughput(attempts.ranks),
        metrics=trainer.metrics,
        parameters=step.parameters,
        flops_forward_per_sample=flops.forward if flops is not None else 0,
        flops_training_per_sample=flops.training if flops is not None else 0,
        energy_j=joules,
        energy_source=source,
        energy_note=note,
        slow_nodes=slow_nodes(attempts.ranks),
        peak_memory_bytes=attempts.peak_memory_bytes,
        resumed=max(len(attempts.attempts) - 1, state.resumed),
        started=started_at(attempts),
        division=config.submission.division,
        ruleset=config.submission.ruleset,
        **measured,
    )


def arrangement(run: RunContext) -> dict[str, Any]:
    """The ranks of the run, what they run on, and how they share a batch."""
    config, launch = run.config, run.launch
    return {
        "world_size": launch.world_size,
        "spatial": config.parallel.spatial,
        "simulated_ranks": config.parallel.simulated_ranks,
        "simulated_nodes": config.parallel.simulated_nodes,
        "batchnorm_group_size": config.train.batchnorm_group_size,
        "nodes": launch.nodes,
        "ranks_per_node": launch.local_size,
        "threads": run.threads,
        "device": run.device_name,
        "device_type": run.device.type,
        "precision": run.precision.name,
        "channels_last": config.train.channels_last,
        "local_batch_size": config.train.local_batch_size,
        "accumulation": config.train.accumulation,
        "global_batch_size": run.global_batch_size,
    }


def throughput(history: list[dict[str, float]]) -> float | None:
    """Median training throughput over the rows of ``epochs.csv`` after the first, in samples per second."""
    rates = [row["samples_per_s"] for row in history[1:]]
    return statistics.median(rates) if rates else None


def warm_throughput(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """Training throughput of all ranks over the steps after the warm-up, by the slowest rank's clock."""
    longest = max((rank["wall_s"] or 0.0 for rank in ranks), default=0.0)
    return float(ranks[0]["samples"] / longest) if longest else None


def stored_bytes(run: RunContext) -> dict[str, Any]:
    """Bytes of the two splits at the dataset's source and of the run folder; without what cannot be determined."""
    sizes = {"folder_bytes": folder_bytes(run.folder.path)}
    with contextlib.suppress(OSError, InputError):
        for split in SPLITS:
            sizes[f"{split}_bytes"] = files_bytes(files_of_split(run.application, run.config, split))
    return sizes


def save_arrays(
    folder: RunFolder, columns: Sequence[str], scores: Tensor, examples: dict[str, Tensor]
) -> None:  # fmt: skip
    """Save the scores of the last evaluation by their ``columns``, and the examples for pictures."""
    if len(scores):
        np.savez_compressed(folder.scores, scores=scores.numpy(), columns=np.array(columns))
    arrays: dict[str, Any] = {name: value.numpy() for name, value in examples.items()}
    if arrays:
        np.savez_compressed(folder.examples, **arrays)


def draw(run: RunContext) -> Drawings | None:
    """Draw the plots of the page, if one is wanted; a run is complete without, so a failure is reported, not fatal."""
    if not run.config.train.page:
        return None
    try:
        # The packages that draw it (matplotlib, pandas) may be missing on a machine that only trains.
        from hpcbench.results.records import read_run
        from hpcbench.results.report import draw_run

        return draw_run(read_run(run.folder.path), run.folder.report)
    except Interrupted:
        raise
    except Exception as error:
        run.console.say(f"the report page could not be drawn: {error}")
        return None


def draw_in_time(run: RunContext, left: float) -> Drawings | None:
    """As ``draw``, but for at most ``left`` seconds after a signal: a killed process has no exit code."""
    if not run.config.train.page:
        return None
    if left == math.inf:
        return draw(run)
    drawn: list[Drawings | None] = []
    if left > 0 and within(left, lambda: drawn.append(draw(run))):
        return drawn[0] if drawn else None
    run.console.say(f"no time to draw the report page; `hpcbench report {run.folder.path}` does it")
    leave_at_exit()
    return None


def write_page(folder: RunFolder, console: Console, drawn: Drawings | None) -> None:
    """Write the report page around the plots ``drawn``."""
    if drawn is None:
        return
    try:
        from hpcbench.results.report import write_run_page

        write_run_page(folder.path, drawn)
    except Interrupted:
        raise
    except Exception as error:
        console.say(f"the report page could not be written: {error}")


def outcome(summary: Summary) -> str:
    """The last line of a run."""
    value: Any = summary.metrics.get(summary.metric)
    quality = f"{summary.metric} {value:.4f}" + ("" if summary.target is None else f" (target {summary.target})")
    epochs = counted_epochs(summary.epochs)
    return f"{summary.status}: {quality} after {epochs}, {summary.time_to_solution_s:.1f} s on the clock"
