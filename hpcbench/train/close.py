"""Ends a run: stops the clock, and writes the summary, the pictures' data and the report."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from hpcbench.measure.flops import count_flops
from hpcbench.measure.slow_nodes import slow_nodes
from hpcbench.results.summary import PHASES, Status, Summary
from hpcbench.train.evaluate import keep_examples
from hpcbench.train.own_figures import NodesEnergy, all_figures

if TYPE_CHECKING:
    from hpcbench.train.context import Run


def close_run(run: Run, status: Status, reason: str = "") -> None:
    """Stop the clock first; then leave everything that a reader of the run folder needs.

    Only the first call counts: an error elsewhere may end the run from another thread.
    """
    if not run.closing.acquire(blocking=False):
        return
    run.stop_clock(status, reason)
    run.console.stop_epoch()
    summary = summarize(run, status, reason)
    # A pass is for all ranks that share samples, or parameters.
    together = run.mesh.data_rank == 0 or run.config.parallel.shard_states
    examples = keep_examples(run) if status != "aborted" and together else {}
    if not run.is_first:
        return
    if status == "aborted":
        with contextlib.suppress(OSError):
            run.folder.write_summary(summary)
            run.folder.release()
        return
    save_arrays(run, examples)
    run.folder.write_summary(summary)
    if run.config.train.baselines and run.application.has("baselines"):
        run.console.say("computing the baselines")
        summary.baselines = run.application.module("baselines").baselines(run.config)
    run.folder.write_summary(summary)
    run.folder.release()
    write_page(run)
    run.console.say(f"{outcome(run, summary)}\nrun folder: {run.folder.path}")


def summarize(run: Run, status: Status, reason: str) -> Summary:
    """The run in numbers."""
    run.phases.spans.stop()
    config, launch, state = run.config, run.launch, run.state
    spans = run.phases.spans.summary()
    wall = spans.pop("wall")
    parameters, forward, training = model_size(run, status)
    ranks, energy = figures_of_ranks(run, status)
    return Summary(
        application=run.application.name,
        title=run.application.title,
        preset=config.preset,
        status=status,
        reason=reason,
        seed=run.seed,
        metric=run.task.metric,
        better=run.task.better,
        target=config.train.target,
        best=state.best,
        epochs=state.evaluated,
        steps=state.step,
        samples=state.samples,
        checkpoints=run.checkpoints_written,
        evaluations=run.evaluations,
        epochs_to_target=state.evaluated if status == "success" and config.train.target is not None else None,
        time_to_solution_s=run.log.elapsed_s(),
        wall_s=wall,
        phases_s={name: spans.get(name, 0.0) for name in PHASES},
        world_size=launch.world_size,
        spatial=config.parallel.spatial,
        simulated_ranks=config.parallel.simulated_ranks,
        simulated_nodes=config.parallel.simulated_nodes,
        batchnorm_group_size=config.train.batchnorm_group_size,
        nodes=launch.nodes,
        ranks_per_node=launch.local_size,
        threads=run.threads,
        device=run.device_name,
        precision=run.precision,
        channels_last=config.train.channels_last,
        local_batch_size=config.train.local_batch_size,
        accumulation=config.train.accumulation,
        global_batch_size=run.global_batch_size,
        peak_lr=config.optim.lr,
        train_samples=len(run.training),
        validation_samples=len(run.validation),
        samples_per_s=throughput(state.history),
        warm_samples_per_s=warm_throughput(ranks),
        metrics=run.metrics,
        noise_scale=None if run.noise_scale is None else run.noise_scale.averages.median(),
        parameters=parameters,
        flops_forward_per_sample=forward,
        flops_training_per_sample=training,
        energy_j=energy.joules,
        energy_source=energy.source,
        energy_note=energy.note,
        slow_nodes=slow_nodes(ranks),
        peak_memory_bytes=0 if status == "aborted" else run.peak_memory(),
        resumed=state.resumed,
        started=run.started,
        division=config.submission.division,
        ruleset=config.submission.ruleset,
    )


def throughput(history: list[dict[str, float]]) -> float | None:
    """Median training throughput over the rows of ``epochs.csv`` after the first, in samples per second."""
    rates = [row["samples_per_s"] for row in history[1:]]
    return statistics.median(rates) if rates else None


def warm_throughput(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """Training throughput of all ranks over the steps after the warm-up, by the slowest rank's clock."""
    longest = max((rank["wall_s"] or 0.0 for rank in ranks), default=0.0)
    return ranks[0]["samples"] / longest if longest else None


def figures_of_ranks(run: Run, status: Status) -> tuple[list[dict[str, Any]], NodesEnergy]:
    """What all ranks measured, which rank 0 keeps; an aborted run does not wait for the others."""
    if status == "aborted":
        return [], NodesEnergy(None, "", "not measured: the run was aborted")
    ranks, energy = all_figures(run.own, bool(run.state.resumed))
    if run.is_first:
        run.folder.write_ranks(ranks)
    return ranks, energy


def model_size(run: Run, status: Status) -> tuple[int, int, int]:
    """Parameters, and floating-point operations per sample: forward, and forward with backward."""
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    if status == "aborted" or not run.is_first:
        return parameters, 0, 0
    inputs, _ = run.first_batch()
    flops = count_flops(run.whole_model, inputs[:1])
    return parameters, flops.forward, flops.training


def save_arrays(run: Run, examples: dict[str, Tensor]) -> None:
    """Scores of the last evaluation, and the examples for pictures."""
    if len(run.scores):
        np.savez_compressed(run.folder.scores, scores=run.scores.numpy(), columns=np.array(run.task.columns))
    arrays: dict[str, Any] = {name: value.numpy() for name, value in examples.items()}
    if arrays:
        np.savez_compressed(run.folder.examples, **arrays)


def write_page(run: Run) -> None:
    """The report page; a run is complete without it, so a failure there is said and not fatal."""
    from hpcbench.results.report import write_report

    try:
        write_report([run.folder.path])
    except Exception as error:
        run.console.say(f"the report page could not be written: {error}")


def outcome(run: Run, summary: Summary) -> str:
    """The last line of a run."""
    value: Any = summary.metrics.get(summary.metric)
    quality = f"{summary.metric} {value:.4f}" + ("" if summary.target is None else f" (target {summary.target})")
    return f"{summary.status}: {quality} after {summary.epochs} epochs, {summary.time_to_solution_s:.1f} s on the clock"
