"""Violations of the MLPerf HPC rules that the official checker lets pass.

Source: mlcommons/training_policies, hpc_training_rules.adoc, version 3.0, and the behavior of mlperf_logging 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcbench.results.mllog_reader import Event

LARGEST = 2**53
QUALITY_KEYS = ("eval_error", "eval_accuracy")
PUBLISHED_TARGETS = {"cosmoflow": 0.124, "deepcam": 0.82, "oc20": 0.036, "openfold": 0.8}
PUBLISHED_SAMPLES = {"cosmoflow": (524288, 65536), "deepcam": (121266, 15158)}
"""Training and validation samples since round 1.0."""
PUBLISHED_SHAPES = {"cosmoflow": {"sample_size": 128, "channels": 4}, "deepcam": {"height": 768, "width": 1152}}
"""Settings of ``data`` that give the shape of a sample, as published since round 1.0."""


def check_rules(events: list[Event], benchmark: str, division: str, ruleset: str) -> tuple[list[str], list[str]]:
    """Return the faults in the log ``events``, and notes on what is unusual but allowed."""
    faults = [message for rule in RULES for message in rule(events)]
    notes: list[str] = []
    if division == "closed":
        faults += _closed_values(events, benchmark)
    # Logs of the rounds before 3.0 often have no seed, so for them it is only a note.
    (faults if division == "closed" and ruleset == "3.0.0" else notes).extend(_seed(events))
    late = _after_stop(events)
    # An open run may have no target; the official checker decides whether it met the published one.
    target = named_target(events)
    if target is None and division == "closed":
        target = PUBLISHED_TARGETS.get(benchmark)
    reached = _reached(events, target)
    if late and reached:
        notes.append(f"{late}; allowed, since the target was reached before")
    elif late:
        faults.append(late)
    if reached is False:
        faults.append("no metric before run_stop reaches the target")
    return faults, notes


def own_target_reached(events: list[Event]) -> bool:
    """Whether the log names a target of its own and a metric before ``run_stop`` reaches it."""
    return _reached(events, named_target(events)) is True


def _status(events: list[Event]) -> Iterator[str]:
    for event in events:
        if event.key == "run_stop" and event.metadata.get("status") != "success":
            reason = event.metadata.get("reason")
            yield f"run_stop has status '{event.metadata.get('status')}'" + (f" ({reason})" if reason else "")


def _order(events: list[Event]) -> Iterator[str]:
    """``cache_clear``, then ``run_start``, then the first epoch, then ``run_stop``."""
    start, stop, clear = (_position(events, key) for key in ("run_start", "run_stop", "cache_clear"))
    epoch = min(
        (p for key in ("epoch_start", "block_start", "eval_start") if (p := _position(events, key)) >= 0), default=-1
    )
    if 0 <= start < clear:
        yield "cache_clear comes after run_start, so the caches were not cleared before the run"
    if 0 <= epoch < start:
        yield f"{events[epoch].key} comes before run_start, so the dataset was touched before the clock"
    if 0 <= stop < epoch:
        yield "run_stop comes before the first epoch"


def _epochs(events: list[Event]) -> Iterator[str]:
    stop = _position(events, "run_stop")
    before = events if stop < 0 else events[:stop]
    numbers = [event.epoch for event in before if event.key == "epoch_start"]
    for place, number in enumerate(numbers, 1):
        if number != place:
            yield f"epoch_start number {place} has epoch_num {number}; epochs count from 1 without a gap"
            return


def _time(events: list[Event]) -> Iterator[str]:
    for before, after in pairwise(events):
        if after.time_ms < before.time_ms:
            back = before.time_ms - after.time_ms
            yield f"time goes back by {back:.0f} ms at {after.key} in line {after.line}"
            return


def _finite(events: list[Event]) -> Iterator[str]:
    for event in events:
        if any(isinstance(v, float) and not math.isfinite(v) for v in _flat(event.value)):
            yield f"{event.key} in line {event.line} has the value {event.value}"


def _seed(events: list[Event]) -> Iterator[str]:
    seeds = [event for event in events if event.key == "seed"]
    if not seeds:
        yield "no seed is logged, which the official package checker wants in the closed division"
    for event in seeds:
        if not isinstance(event.value, int) or isinstance(event.value, bool):
            yield f"seed {event.value!r} is not an integer"
        if not {"file", "lineno"} <= event.metadata.keys():
            yield "seed lacks file and lineno in its metadata"


def _closed_values(events: list[Event], benchmark: str) -> Iterator[str]:
    """Values of the closed division that the official files leave unchecked."""
    values = {event.key: event.value for event in events}
    for key, published in zip(("train_samples", "eval_samples"), PUBLISHED_SAMPLES.get(benchmark, ()), strict=False):
        if key in values and values[key] != published:
            yield f"{key} is {values[key]}, the published set has {published}"
    factors = _flat(values.get("opt_learning_rate_decay_factor", []))
    if any(isinstance(f, int | float) and not 0 < f < 1 for f in factors):
        yield f"opt_learning_rate_decay_factor {values['opt_learning_rate_decay_factor']} is not between 0 and 1"
    decay = values.get("opt_weight_decay", 0)
    if isinstance(decay, int | float) and decay < 0:
        yield f"opt_weight_decay {decay} is negative"


RULES: tuple[Callable[[list[Event]], Iterator[str]], ...] = (_status, _order, _epochs, _time, _finite)


def _after_stop(events: list[Event]) -> str:
    """Say what was evaluated after ``run_stop``; empty if nothing was."""
    stop = _position(events, "run_stop")
    late = [event for event in events[stop + 1 :] if event.key in QUALITY_KEYS] if stop >= 0 else []
    return f"{late[0].key} in line {late[0].line} comes after run_stop" if late else ""


def named_target(events: Sequence[Event]) -> float | None:
    """The target that the log names (the last one if a resumed run changed it); ``None`` if it names no number."""
    for event in reversed(events):
        named = event.value if event.key in ("quality_target", "target_accuracy_reached") else None
        if isinstance(named, int | float) and abs(named) < LARGEST:
            return float(named)
    return None


def _reached(events: list[Event], target: float | None) -> bool | None:
    """Whether a metric before ``run_stop`` reaches ``target``; unknown without a target or a metric."""
    stop = _position(events, "run_stop")
    before = events if stop < 0 else events[:stop]
    # Some published logs write an error with its sign reversed as accuracy, too; the error then decides.
    key = next((key for key in QUALITY_KEYS if any(event.key == key for event in before)), None)
    if key is None or target is None:
        return None
    values = [e.value for e in before if e.key == key and isinstance(e.value, int | float)]
    return any(v <= target if key == "eval_error" else v >= target for v in values)


def _position(events: list[Event], *keys: str) -> int:
    """Index of the first event with one of ``keys``; -1 if there is none."""
    return next((place for place, event in enumerate(events) if event.key in keys), -1)


def _flat(value: Any) -> list[Any]:
    """The items of lists within lists, however deep a log nests them."""
    items, left = [], [value]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left.extend(reversed(item))
        else:
            items.append(item)
    return items
