"""Read an official log as a record of its run. Inconsistent logs are read as far as possible, with a note."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from typing import Any

from hpcbench.mlperf.convergence_check import SAMPLES_AS_EPOCHS
from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.log_phases import epochs_begun, phases_of
from hpcbench.mlperf.reached_target import QUALITIES, target_of, why_missed
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.mlperf.step_lines import OF_STEPS, is_to_be_parsed
from hpcbench.results.mllog_reader import Event, read_events
from hpcbench.results.units import counted
from staging.errors import DataError
from staging.formats.regular import read_text
from staging.one_line import one_line

RECIPE = ("opt_", "scheduler_")
RECIPE_KEYS = frozenset({"dropout", "batchnorm_group_size", "gradient_accumulation_frequency"})
LARGEST = 2**53
LARGEST_SEED = 2**63
LONGEST_TEXT = 200
"""The most characters of a name or setting that a record keeps."""
DEEPEST = 3
"""The most lists within lists that a setting of a record has."""


def read_log(location: LogLocation, *, staged_beside: bool = False) -> RunRecord:
    """Read the run of a log; ``staged_beside`` as in ``phases_of``.

    Raises ``DataError`` for a file that cannot be read or holds no line of a log.
    """
    parsed, problems = read_events(location.path, is_to_be_parsed)
    lines = [event for event in parsed if event.key not in OF_STEPS]
    events = [event for event in lines if finite(event.time_ms)]
    if not events:
        why = f" that can be read; the first: {one_line(problems[0], LONGEST_TEXT)}" if problems else ""
        raise DataError(location.path, f"holds no line of an official log (:::MLLOG){why}", "give logs of MLPerf HPC")
    record = RunRecord(path=str(location.path), origin=location.origin, round=location.round, mode=location.mode)
    record.pruned = location.pruned
    values = first_values(events)
    record.organization = text(location.organization) or text(values.get("submission_org"))
    record.system = text(location.system) or text(values.get("submission_platform"))
    record.application = text(values.get("submission_benchmark")) or text(location.application)
    record.division = text(values.get("submission_division"))
    record.category = text(values.get("submission_status"))
    record.optimizer = text(values.get("opt_name"))
    record.global_batch_size = whole(values.get("global_batch_size"))
    record.train_samples = whole(values.get("train_samples"))
    record.validation_samples = whole(values.get("eval_samples"))
    record.recipe = recipe_of(values)
    if problems:
        first = one_line(problems[0], LONGEST_TEXT)
        record.notes.append(f"{counted(len(problems), 'line')} cannot be read, the first: {first}")
    if len(events) < len(lines):
        record.notes.append(f"{counted(len(lines) - len(events), 'line')} without a time")
    note_application(record, location)
    set_seed(record, values)
    set_scale(record, values, system_description(location, record))
    set_end(record, events)
    set_phases(record, events, staged_beside)
    note_epochs(record)
    return record


def first_values(events: Sequence[Event]) -> dict[str, Any]:
    """Return the first value of each key."""
    value_by_key: dict[str, Any] = {}
    for event in events:
        value_by_key.setdefault(event.key, event.value)
    return value_by_key


def recipe_of(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of the training among the first values."""
    named = {key: value for key, value in values.items() if key.startswith(RECIPE) or key in RECIPE_KEYS}
    return {one_line(key, LONGEST_TEXT): setting(value) for key, value in named.items()}


def setting(value: object, depth: int = 0) -> object:
    """``value`` as a record keeps it: numbers in the range of calculations, printable text, flat lists of these."""
    if isinstance(value, list) and depth < DEEPEST:
        return [setting(part, depth + 1) for part in value]
    if value is None or isinstance(value, bool | float) or finite(value):
        return value
    if isinstance(value, int):
        return math.inf if value > 0 else -math.inf
    return one_line(value if isinstance(value, str) else f"a {type(value).__name__}", LONGEST_TEXT)


def text(value: object) -> str | None:
    """``value`` as one printable line if it is non-empty text, else ``None``.

    Terminals obey control characters, and lone surrogates cannot be written to a file.
    """
    return one_line(value, LONGEST_TEXT) if isinstance(value, str) and value else None


def whole(value: object) -> int | None:
    """``value`` if it is a whole number of at least 1, or the text of one; else ``None``."""
    number = count(value)
    return number if number else None


def count(value: object) -> int | None:
    """``value`` if it is a whole number of at least 0, or the text of one; else ``None``."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST:
        return None
    return int(value) if value == int(value) else None


def finite(value: object) -> bool:
    """Whether ``value`` is a number that can be used in calculations."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def note_application(record: RunRecord, location: LogLocation) -> None:
    """Add a note if the log is of another application than its folder."""
    if location.application and record.application != location.application:
        record.notes.append(f"submission_benchmark is {record.application}, the folder {location.application}")


def set_seed(record: RunRecord, values: dict[str, Any]) -> None:
    """Set the seed, with a note if it is not a valid one."""
    seed = values.get("seed")
    if isinstance(seed, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", seed):
        record.notes.append("the seed is text")
        seed = int(seed)
    if isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < LARGEST_SEED:
        record.seed = seed
    elif seed is not None:
        record.notes.append("the seed is not a whole number of at most 63 bits")


def system_description(location: LogLocation, record: RunRecord) -> dict[str, Any]:
    """The system description of the log's folder; empty if there is none."""
    if location.description is None:
        return {}
    try:
        description = json.loads(read_text(location.description, encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        record.notes.append(f"{location.description.name} cannot be read")
        return {}
    return description if isinstance(description, dict) else {}


def set_scale(record: RunRecord, values: dict[str, Any], system: dict[str, Any]) -> None:
    """Set the nodes and accelerators of the instance."""
    record.nodes = whole(values.get("number_of_nodes"))
    per_node = count(values.get("accelerators_per_node"))
    system_nodes, system_each = whole(system.get("number_of_nodes")), count(system.get("accelerators_per_node"))
    if record.nodes is None and record.mode != "throughput":
        record.nodes = system_nodes
    per_node = system_each if per_node is None else per_node
    if record.nodes is not None and per_node is not None:
        record.accelerators = whole(record.nodes * max(per_node, 1))
        if record.accelerators is None:
            record.notes.append(
                f"{counted(record.nodes, 'node')} x {counted(per_node, 'accelerator')} are out of range, so unknown"
            )
    record.accelerator = text(system.get("accelerator_model_name")) or text(system.get("host_processor_model_name"))
    if record.nodes is not None and system_nodes is not None and record.nodes > system_nodes:
        nodes = counted(record.nodes, "node")
        record.notes.append(f"{nodes} for an instance, {system_nodes} in the system description")
    ranks = whole(values.get("number_of_ranks"))
    if record.accelerators and record.global_batch_size:
        record.local_batch_size = record.global_batch_size / record.accelerators
        split = count(values.get("spatial_parallel")) or 1
        if record.local_batch_size * split < 1 and (ranks is None or ranks <= record.global_batch_size):
            record.notes.append(
                f"{record.accelerators} accelerators for a batch of {record.global_batch_size}: "
                "the log may hold the nodes of the whole job"
            )


def set_end(record: RunRecord, events: Sequence[Event]) -> None:
    """Set status, epochs and quality."""
    stop = next((number for number, event in enumerate(events) if event.key == "run_stop"), None)
    before = events if stop is None else events[:stop]
    record.epochs_begun = epochs_begun(before) or None
    key = QUALITIES.get(record.application or "")
    scored = [event for event in before if event.key in ("eval_error", "eval_accuracy")]
    odd = [event for event in scored if not finite(event.value)]
    if odd:
        record.notes.append(
            f"{counted(len(odd), 'evaluation')} without a finite value, the first in line {odd[0].line}"
        )
    scored = [event for event in scored if finite(event.value)]
    evaluations = [event for event in scored if event.key == key]
    if not evaluations:  # another application, or a log with the other key: some have both, with opposite signs
        evaluations = [event for event in scored if event.key == scored[0].key]
    record.qualities = [float(event.value) for event in evaluations]
    if stop is None:
        record.reason = "the log ends before run_stop"
        return
    record.status = text(events[stop].metadata.get("status"))
    if record.status is None:
        record.reason = "run_stop has no status"
    elif record.status != "success":
        record.reason = f"run_stop says {record.status}"
    elif not evaluations:
        record.reason = "no evaluation before run_stop"
    if not evaluations:
        return
    record.quality = record.qualities[-1]
    if record.status == "success":
        set_epochs(record, evaluations[-1].epoch)
        lower = (key or evaluations[0].key) == "eval_error"
        record.reason = why_missed(record.qualities, target_of(record.application, record.origin, events), lower)


def set_epochs(record: RunRecord, number: float | None) -> None:
    """Set the epochs from the ``epoch_num`` of the last evaluation, with a note if it cannot be one."""
    if number is None or not finite(number) or number <= 0:
        what = "missing" if number is None else f"{number:g}" if finite(number) else "out of range"
        record.notes.append(f"epoch_num of the last evaluation is {what}, so the epochs are unknown")
        return
    record.epochs = float(number)
    if record.application == SAMPLES_AS_EPOCHS:
        record.epochs = record.epochs / record.train_samples if record.train_samples else None
        record.notes.append("epoch_num counts samples")


def note_epochs(record: RunRecord) -> None:
    """Add a note if the last evaluation claims more epochs than were trained."""
    if claims_epochs(record):
        begun = counted(record.epochs_begun or 0, "epoch")
        record.notes.append(f"epoch_num of the last evaluation is {record.epochs:g}, and {begun} began before it")


def claims_epochs(record: RunRecord) -> bool:
    """Whether the last evaluation claims at least one epoch more than the log has begun."""
    if record.application == SAMPLES_AS_EPOCHS or record.epochs is None or not record.epochs_begun:
        return False
    return record.epochs_begun <= record.epochs - 1


def set_phases(record: RunRecord, events: Sequence[Event], staged_beside: bool) -> None:
    """Set the seconds of the phases, and the rates."""
    phases = phases_of(events, staged_beside=staged_beside)
    record.notes += phases.notes
    record.start_unix_s, record.time_to_train_s = phases.start_unix_s, phases.time_to_train_s
    record.init_s, record.staging_s, record.staging_before_s = phases.init_s, phases.staging_s, phases.staging_before_s
    record.epochs_s, record.evaluations_s, record.rest_s = phases.epochs_s, phases.evaluations_s, phases.rest_s
    set_rates(record)


def set_rates(record: RunRecord) -> None:
    """Set the rates, from the seconds of epochs."""
    epochs = record.epochs_s[1:] or record.epochs_s
    middle = statistics.median(epochs) if epochs else 0.0
    if record.train_samples and middle > 0:
        record.samples_per_s = record.train_samples / middle
        if record.accelerators:
            record.samples_per_s_per_accelerator = record.samples_per_s / record.accelerators
