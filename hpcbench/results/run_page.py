"""What the page of one run says: its verdict, key numbers and tables, as text ready to print."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcbench.application import Application, find_application, installed
from hpcbench.results import units
from hpcbench.results.checkpoint_files import resume_advice
from hpcbench.results.expectation import expectation
from hpcbench.results.machine_use import flops_utilization, model_rate
from hpcbench.results.plots import metric_label, words
from hpcbench.results.records import Run
from hpcbench.results.references import references, spread
from hpcbench.results.summary import Summary

FILE_WORDS = {
    "config.yaml": "the resolved configuration",
    "system.json": "system description in the form of an MLPerf submission",
    "environment.json": "command line, versions, source, host, launcher",
    "mllog.txt": "official log of the run",
    "steps.csv": "loss and learning rate of every optimizer step",
    "ranks.csv": "what every rank measured of its steps and phases",
    "attempts.json": "what every attempt of the run took",
    "epochs.csv": "metrics, times and throughput of every epoch",
    "summary.json": "the run in numbers",
    "staging.json": "what staging copied, and how fast",
    "examples.npz": "validation samples for pictures",
    "scores.npz": "scores of every validation sample in the last evaluation",
    "trust_ratios.csv": "norms and trust ratio of every layer",
    "noise_scale.csv": "gradient noise scale, from small and large batches",
    "power": "power that the run's nodes drew, in MLPerf's format",
    "trace.json.gz": "operations of a few steps, for a viewer of traces",
    "tensorboard": "curves for TensorBoard",
    "checkpoints": "the newest checkpoints, each with its checksum",
}


def application_of(run: Run) -> Application | None:
    """The run's application, or ``None`` where it is not installed here."""
    name = run.summary.application
    return find_application(name) if name in installed() else None


def plots_module(run: Run) -> ModuleType | None:
    """The application's ``plots`` module, where it has one."""
    application = application_of(run)
    return application.module("plots") if application is not None and application.has("plots") else None


@dataclass(frozen=True)
class Words:
    """An application's own words for itself and its metrics; keys are used where it gives none."""

    about: str
    labels: dict[str, str]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, run: Run) -> Words:
        """The words of the run's application."""
        module = plots_module(run)
        return cls(
            getattr(module, "ABOUT", ""),
            getattr(module, "LABELS", {}),
            getattr(module, "NOTES", ()),
        )


def verdict(run: Run) -> dict[str, str]:
    """Status, headline and sentence of the page, with the reason where a run was aborted."""
    s = run.summary
    metric, score = f"validation {metric_label(s.metric)}", units.score(run.quality)
    bound = "or lower" if run.lower_is_better else "or higher"
    target = "" if s.target is None else f"The target is {units.score(s.target)} {bound}."
    took = f"{count(s.epochs, 'epoch')} and {units.duration(s.time_to_solution_s)}"
    if s.status == "aborted":
        return _aborted(run)
    if s.target is None:
        sentence = f"It ends with a {metric} of {score}. {against_baselines(run)}"
        return _verdict(
            "plain",
            "no target set",
            f"Trained for {count(s.epochs, 'epoch')} in {units.duration(s.time_to_solution_s)}",
            sentence,
        )
    if run.reached:
        sentence = f"A {metric} of {score} after {count(s.epochs, 'epoch')}. {target} {against_baselines(run)}"
        headline = f"Reached its target in {units.duration(s.time_to_solution_s)}"
        return _verdict("good", "target reached", headline, sentence)
    sentence = f"The best {metric} is {score} after {took}. {target} {against_baselines(run)}"
    return _verdict("bad", "target not reached", "Did not reach its target", sentence)


ABORTED = {
    "diverged": "The training diverged.", "bad_data": "The dataset could not be read.",
    "preempted": "The batch system took the nodes back.", "full_disk": "The disk was full.",
    "rank_lost": "A rank was lost, and the others ended with it.", "hang": "A rank did not answer in time.",
    "error": "An error ended it.",
}  # fmt: skip
"""What a cause means, as the page of an aborted run says it."""


def _aborted(run: Run) -> dict[str, str]:
    s = run.summary
    after = count(s.epochs, "epoch") if s.epochs else count(s.steps, "optimizer step")
    said, reason, headline = [ABORTED.get(s.cause or "", "")], s.reason, f"Aborted after {after}"
    if s.cause == "signal":
        named = s.signal or "A signal"
        said = [f"{named} asked it to end, as batch systems do before the time of a job is up."]
        headline = f"Stopped by {s.signal or 'a signal'} after {after}"
        reason = "" if reason == f"signal {s.signal}" else reason
    if run.quality is not None:
        said.append(f"The best validation {metric_label(s.metric)} until then was {units.score(run.quality)}.")
    if s.cause not in (None, "diverged"):
        said.append(f"To continue, {resume_advice(run.folder.checkpoints)}.")
    return _verdict("bad", "aborted", headline, " ".join(filter(None, said)), reason)


def _verdict(tone: str, status: str, headline: str, sentence: str, reason: str = "") -> dict[str, str]:
    return {"tone": tone, "status": status, "headline": headline, "sentence": sentence, "reason": reason}


def against_baselines(run: Run) -> str:
    """Which baselines the network beats, and which it does not."""
    scores = run.baseline_scores()
    named = {name: f"{words(name)} ({units.score(score)})" for name, score in scores.items()}
    beaten = [named[name] for name, score in scores.items() if run.beats(score)]
    others = [named[name] for name, score in scores.items() if not run.beats(score)]
    parts = [f"Baselines that it beats: {', '.join(beaten)}."] if beaten else []
    parts += [f"Baselines that it does not beat: {', '.join(others)}."] if others else []
    return " ".join(parts)


def count(number: float, thing: str) -> str:
    """``1 epoch``, ``9 epochs``, ``2.25 epochs``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def tiles(run: Run) -> list[dict[str, str]]:
    """The key numbers."""
    s = run.summary
    target = (
        "no target" if s.target is None else f"target {'≤' if run.lower_is_better else '≥'} {units.score(s.target)}"
    )
    quality = "at the end" if s.status == "success" else "best"
    share = flops_utilization(s, run.rank_rows())
    used = "peak not measured" if share is None else f"{units.percent(share)} of the measured peak"
    sharing = "" if s.spatial == "1" else f" of {s.spatial} ranks"
    ranks = count(s.data_parallel_size, "group" if sharing else "rank")
    shape = f"{ranks}{sharing}{s.simulating} x {s.local_batch_size:,}"
    shape += f" x {s.accumulation} accumulated" if s.accumulation > 1 else ""
    shown = [
        (
            "time to solution" if run.reached else "time on the clock",
            units.duration(s.time_to_solution_s),
            wall_words(s),
        ),
        (f"validation {metric_label(s.metric)}", units.score(run.quality), f"{quality}; {target}"),
        epochs_tile(run),
        throughput_tile(s),
        ("compute rate", units.prefixed(model_rate(s), "FLOP/s"), used),
        ("model", units.integer(s.parameters), "parameters"),
        ("global batch", units.integer(s.global_batch_size), shape),
        ("peak memory", units.size(s.peak_memory_bytes), "of a rank"),
    ]
    return [{"label": label, "value": value, "note": note} for label, value, note in shown if value != units.MISSING]


def wall_words(s: Summary) -> str:
    """The wall time of all attempts, and the time between them, which is also on the clock."""
    if not s.resumed:
        return f"of {units.duration(s.wall_s)} wall time"
    return f"{units.duration(s.wall_s)} wall time in {s.resumed + 1} attempts, {units.duration(s.gaps_s)} between them"


def epochs_tile(run: Run) -> tuple[str, str, str]:
    """Epochs at the first evaluation that met the target; for a run that met none, all of them."""
    s, steps = run.summary, count(run.summary.steps, "optimizer step")
    if not run.reached:
        return "epochs", units.epochs(s.epochs), steps
    more = "" if s.epochs_to_target == s.epochs else f" in {count(s.epochs, 'epoch')}"
    return "epochs to target", units.epochs(s.epochs_to_target), steps + more


def throughput_tile(s: Summary) -> tuple[str, str, str]:
    """The median over epochs; for a run with a single epoch, the rate of the steps after the warm-up."""
    if s.samples_per_s is None and s.warm_samples_per_s is not None:
        return "throughput", units.significant(s.warm_samples_per_s), "training samples/s after the warm-up"
    return "throughput", units.significant(s.samples_per_s), "training samples/s"


def metrics_table(run: Run) -> dict[str, Any]:
    """Every metric of the last evaluation beside the baselines; the best of a row is marked where "better" is known."""
    spoken, s = Words.of(run), run.summary
    series = {"network": s.metrics} | {words(name): s.baselines[name] for name in s.baselines}
    rows = []
    for name in sorted(s.metrics, key=lambda key: key != s.metric):
        values = [metrics.get(name) for metrics in series.values()]
        known = [value for value in values if value is not None and math.isfinite(value)]
        comparable = name == s.metric or name.startswith(f"{s.metric}_")
        best = (min(known) if run.lower_is_better else max(known)) if comparable and len(known) > 1 else None
        cells = [{"text": units.metric(value), "best": best is not None and value == best} for value in values]
        rows.append({"label": spoken.labels.get(name, words(name)), "cells": cells, "is_target": name == s.metric})
    return {"columns": list(series), "rows": rows}


def reference_rows(run: Run) -> tuple[list[dict[str, str]], dict[str, str], str]:
    """The reference runs of the same preset, this run in the same columns, and whether it is what to expect."""
    application, s = application_of(run), run.summary
    points = [] if application is None else references(application, s.preset)
    rows = [
        {
            "hardware": point.hardware, "batch": units.integer(point.batch_size), "runs": str(len(point.epochs)),
            "epochs": spread(point.epochs), "seconds": spread(point.seconds),
        }
        for point in points
    ]  # fmt: skip
    seconds = units.significant(s.time_to_solution_s) if run.reached else units.MISSING
    here = {"batch": units.integer(s.global_batch_size), "epochs": units.epochs(s.epochs_to_target)}
    return rows, here | {"seconds": seconds}, expectation(run, points)


def setup_pairs(run: Run) -> list[tuple[str, str]]:
    """How training was set up."""
    s = run.summary
    pairs = [
        ("seed", str(s.seed)),
        ("precision", s.precision + (", channels last" if s.channels_last else "")),
        ("training samples", units.integer(s.train_samples)),
        ("validation samples", units.integer(s.validation_samples)),
        ("division and rules", f"{s.division}, MLPerf HPC {s.ruleset}"),
    ]
    if s.flops_forward_per_sample:  # they are counted at the end of a run that gets there
        pairs.insert(4, ("forward pass", f"{units.prefixed(s.flops_forward_per_sample, 'FLOP')}/sample"))
    if s.peak_lr is not None:
        pairs.insert(2, ("peak learning rate", units.significant(s.peak_lr)))
    if scale := units.noise_scale(s.noise_scale, s.noise_scale_low, s.noise_scale_high):
        pairs.append(("gradient noise scale", scale))
    return pairs + ([("resumed", count(s.resumed, "time"))] if s.resumed else [])


def machine_pairs(run: Run, system: dict[str, Any]) -> list[tuple[str, str]]:
    """What the run ran on."""
    s = run.summary
    pairs = [
        ("device", s.device),
        ("ranks", f"{s.world_size:,}{s.splitting}{s.simulating} on {count(s.nodes, 'node')}"),
        ("threads per rank", str(s.threads)),
        ("energy", energy(s)),
        *(("slow node", node) for node in s.slow_nodes),
    ]
    shown = {
        "system": "system_name", "processor": "host_processor_model_name", "memory": "host_memory_capacity",
        "accelerator": "accelerator_model_name", "framework": "framework", "operating system": "operating_system",
    }  # fmt: skip
    return [pair for pair in pairs if pair[1]] + [
        (label, str(system[key])) for label, key in shown.items() if system.get(key) not in ("", "N/A", None)
    ]


def energy(s: Summary) -> str:
    """Joules with their source, or why there are none; empty for runs that did not look."""
    if s.energy_j is None:
        return s.energy_note
    return f"{units.prefixed(s.energy_j, 'J')} ({s.energy_source}: {s.energy_note})"


def description_pairs(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Keys and values of a flat JSON object that are not empty."""
    flat: list[tuple[str, str]] = []
    for key, value in values.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        flat += [(words(f"{key} {name}".strip()), str(item)) for name, item in inner if item not in ("", None)]
    return flat


def file_pairs(run: Run) -> list[tuple[str, str]]:
    """The files in the folder, each with what it holds."""
    return [(name, text) for name, text in FILE_WORDS.items() if (run.folder.path / name).exists()]


def command_line(environment: dict[str, Any]) -> str:
    """The command that made the run, as typed; ``hpcbench`` where Python ran it as a module, as it does for ranks."""
    command = environment.get("command", "")
    if not isinstance(command, list) or not command:
        return str(command or "")
    program = Path(str(command[0]))
    first = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join([first or program.name, *[str(word) for word in command[1:]]])


def day(started: str) -> str:
    """An ISO time as ``14 March 2026, 09:26 UTC``; unchanged where it is none."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    zone = f" {moment.tzname()}" if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"
