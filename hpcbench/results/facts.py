"""What the page of one run says: its verdict, key numbers and tables, as text ready to print."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcbench.application import Application, find_application, installed
from hpcbench.results import style, units
from hpcbench.results.plots import metric_label, words
from hpcbench.results.records import Run
from hpcbench.results.references import references, spread
from hpcbench.results.summary import Summary
from staging.errors import DataError
from staging.probing.bounds import BUSY_WORDS
from staging.probing.ceilings import WORDS

PHASE_WORDS = {
    "init": "processes, model and logs, before the clock starts",
    "staging": "copying the dataset to node-local storage",
    "input_wait": "waiting for the next batch",
    "compute": "forward and backward passes",
    "communication": "reducing gradients, where computation does not hide it",
    "optimizer": "updating the parameters",
    "evaluation": "the whole validation set, after every epoch",
    "checkpoint": "writing checkpoints",
    "other": "everything between the phases above",
}
FILE_WORDS = {
    "config.yaml": "the resolved configuration",
    "system.json": "system description in the form of an MLPerf submission",
    "environment.json": "command line, versions, source, host, launcher",
    "mllog.txt": "official log of the run",
    "steps.csv": "loss and learning rate of every optimizer step",
    "epochs.csv": "metrics, times and throughput of every epoch",
    "summary.json": "the run in numbers",
    "staging.json": "what staging copied, and how fast",
    "examples.npz": "validation samples for pictures",
    "scores.npz": "scores of every validation sample in the last evaluation",
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
    """An application's own words for itself and its metrics; keys serve where it gives none."""

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
        known = f" The best {metric} until then was {score}." if run.quality is not None else ""
        return _verdict("bad", "aborted", f"Aborted after {count(s.epochs, 'epoch')}", known.strip(), s.reason)
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
    rate = None if s.samples_per_s is None else s.samples_per_s * s.flops_training_per_sample
    sharing = "" if s.spatial == "1" else f" of {s.spatial} ranks"
    shape = f"{count(s.places, 'group' if sharing else 'rank')}{sharing}{s.simulating} x {s.local_batch_size:,}"
    shape += f" x {s.accumulation} accumulated" if s.accumulation > 1 else ""
    shown = [
        (
            "time to solution" if run.reached else "time on the clock",
            units.duration(s.time_to_solution_s),
            f"of {units.duration(s.wall_s)} wall time",
        ),
        (f"validation {metric_label(s.metric)}", units.score(run.quality), f"{quality}; {target}"),
        ("epochs to target" if run.reached else "epochs", units.epochs(s.epochs), count(s.steps, "optimizer step")),
        ("throughput", f"{units.significant(s.samples_per_s)}", "training samples/s"),
        (
            "compute rate",
            units.prefixed(rate, "FLOP/s"),
            f"{units.prefixed(s.flops_training_per_sample, 'FLOP')}/sample",
        ),
        ("model", units.integer(s.parameters), "parameters"),
        ("global batch", units.integer(s.global_batch_size), shape),
        ("peak memory", units.size(s.peak_memory_bytes), "of a rank"),
    ]
    return [{"label": label, "value": value, "note": note} for label, value, note in shown if value != units.MISSING]


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


def phase_rows(run: Run) -> list[dict[str, str]]:
    """Seconds and share of each phase."""
    seconds = run.phase_seconds()
    total = sum(seconds.values()) or math.nan
    spoken = PHASE_WORDS | ({"evaluation": "the whole validation set, within epochs, too"} if run.within_epochs else {})
    return [
        {
            "name": words(name), "color": style.PHASE_COLORS.get(name, style.FAINT), "seconds": f"{value:,.3f}",
            "share": units.percent(value / total), "words": spoken.get(name, ""),
        }
        for name, value in seconds.items()
        if value > 0 or name == "other"
    ]  # fmt: skip


def staging_pairs(run: Run) -> list[tuple[str, str]]:
    """The staging report in a few lines, where data were staged. Raises ``DataError`` for a damaged one."""
    found = read_object(run.folder.staging)
    if not isinstance(found.get("ranks"), list):
        return [(words(name), _quantity(name, value)) for name, value in found.items()]
    try:
        return _staging_lines(found)
    except (KeyError, TypeError) as error:
        problem = f"is not a staging report ({type(error).__name__}: {error})"
        raise DataError(run.folder.staging, problem, "delete it to report without it") from None


def _staging_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    how = [str(found["placement"]), str(found["path"]), *([found["transform"]] if found["transform"] else [])]
    caches = "/".join(sorted({node["cache"] for node in found["nodes"]}))
    flushed = "flushed to the device" if found["flushed"] else "not flushed to the device"
    skipped = f", {units.integer(found['skipped'])} were there already" if found["skipped"] else ""
    slowest, median = units.duration(found["slowest_node_s"]), units.duration(found["median_node_s"])
    return [
        ("source", str(found["source"])),
        ("destination", str(found["destination"])),
        ("how", ", ".join(how)),
        ("files landed", f"{units.integer(found['files'])}, {units.size(found['bytes_landed'])}{skipped}"),
        ("read from the source", f"{units.size(found['bytes_read'])} ({caches})"),
        ("seconds", f"{units.duration(found['seconds'])}, {flushed}; checksums: {found['verify']}"),
        ("slowest node", f"{found['slowest_node']}, {slowest}; median {found['median_node']}, {median}"),
        ("bound by", _bound(found)),
    ]


def _bound(found: dict[str, Any]) -> str:
    share = units.percent(found["bound_share"])
    if found["bound_basis"] != "probe":
        said = BUSY_WORDS.get(found["bound_by"], words(found["bound_by"]))
        return f"{said}, {share} of the time; no ceiling was probed (hpcbench stage --probe)"
    parts = [f"{WORDS.get(other['part'], other['part'])} {units.percent(other['share'])}" for other in found["shares"]]
    return f"of the probed ceilings: {', '.join(parts)}" if parts else "nothing moved"


def _quantity(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value)
    if name.endswith("bytes_per_s"):
        return f"{units.size(value)}/s"
    if "bytes" in name:
        return units.size(value)
    if name == "seconds" or name.endswith("_s"):
        return units.duration(value)
    return units.integer(value) if isinstance(value, int) else units.significant(value)


def reference_rows(run: Run) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The reference runs of the same preset, and this run in the same columns."""
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
    return rows, here | {"seconds": seconds}


def setup_pairs(run: Run) -> list[tuple[str, str]]:
    """How training was set up."""
    s = run.summary
    pairs = [
        ("seed", str(s.seed)),
        ("precision", s.precision + (", channels last" if s.channels_last else "")),
        ("training samples", units.integer(s.train_samples)),
        ("validation samples", units.integer(s.validation_samples)),
        ("forward pass", f"{units.prefixed(s.flops_forward_per_sample, 'FLOP')}/sample"),
        ("division and rules", f"{s.division}, MLPerf HPC {s.ruleset}"),
    ]
    if s.peak_lr is not None:
        pairs.insert(2, ("peak learning rate", units.significant(s.peak_lr)))
    if s.noise_scale is not None:
        pairs.append(("gradient noise scale", f"{units.significant(s.noise_scale)} samples"))
    return pairs + ([("resumed", count(s.resumed, "time"))] if s.resumed else [])


def machine_pairs(run: Run, system: dict[str, Any]) -> list[tuple[str, str]]:
    """What it ran on."""
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
    """Joules with their source, or why there are none; nothing of runs that did not look."""
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


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``, empty where there is none. Raises ``DataError`` for a damaged file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(path, f"is not readable as JSON ({error})", "delete it to report without it") from error
    if not isinstance(value, dict):
        raise DataError(path, "is not a JSON object", "delete it to report without it")
    return value


def command_line(environment: dict[str, Any]) -> str:
    """The command that made the run, as typed."""
    command = environment.get("command", "")
    if not isinstance(command, list) or not command:
        return str(command or "")
    first = Path(str(command[0])).name
    return shlex.join([first, *[str(word) for word in command[1:]]])


def day(started: str) -> str:
    """An ISO time as ``14 March 2026, 09:26 UTC``; as it stands where it is none."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    zone = f" {moment.tzname()}" if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"
