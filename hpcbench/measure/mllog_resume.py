"""What a resumed run keeps of its log: the clock keeps running, and work that is repeated is logged once."""

from __future__ import annotations

import itertools
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.results.mllog_reader import Event, parse_events
from hpcbench.results.run_folder import write_atomic
from staging.atomic import replacing
from staging.errors import InputError


@dataclass(frozen=True)
class OldLog:
    """What a run's log held when the run was resumed."""

    run_start_ms: int | None
    """When the clock started; unset if the run ended before that."""
    last_ms: int
    """When the last line was written."""
    values: dict[str, Any]
    """Values of the lines without an epoch, by key."""
    epoch: float
    """Last epoch that was kept, or the fraction of an epoch at its last evaluation."""
    dropped: int
    """Lines that were not kept: ``run_stop``, later epochs, a truncated line."""
    part: str
    """File name under which the old log is kept."""
    text: str
    """The lines that are kept."""


@dataclass(frozen=True)
class FinishedLog:
    """The end of a log whose run ended without being interrupted."""

    run_start_ms: int
    run_stop_ms: int
    cause: str
    """``target``, ``epochs`` or ``steps``."""
    success: bool
    target: float | None
    """The quality that the run had to reach, if it had a target."""


def read_finished(path: Path) -> FinishedLog | None:
    """Return how the run logged at ``path`` ended; ``None`` if it did not end in order, or if there is no log."""
    if not path.is_file():
        return None
    events, _ = parse_events(path.read_text(encoding="utf-8", errors="replace").split("\n"))
    start, stop = (next((e for e in events if e.key == key), None) for key in ("run_start", "run_stop"))
    if start is None or stop is None or stop.metadata.get("cause") not in ("target", "epochs", "steps"):
        return None
    targets = [float(e.value) for e in events if e.key == "quality_target"]
    return FinishedLog(
        int(start.time_ms), int(stop.time_ms), str(stop.metadata["cause"]), stop.metadata.get("status") == "success",
        targets[-1] if targets else None,
    )  # fmt: skip


HEAD_LINES = 100
"""Lines of a log in which its benchmark is looked for: it is among the first five that a run writes."""


def logged_target(path: Path) -> float | None:
    """The quality that the log at ``path`` names last as the one to reach; ``None`` if it names none."""
    if not path.is_file():
        return None
    events, _ = parse_events(path.read_text(encoding="utf-8", errors="replace").split("\n"))
    return next((float(event.value) for event in reversed(events) if event.key == "quality_target"), None)


def logged_benchmark(path: Path) -> str | None:
    """The benchmark of the log at ``path``, which its first lines name; ``None`` without a log, or if none does."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as log:
        events, _ = parse_events([line.rstrip("\n") for line in itertools.islice(log, HEAD_LINES)])
    return next((str(event.value) for event in events if event.key == "submission_benchmark"), None)


def read_old(path: Path, epoch: float | None, extend: bool = False) -> OldLog:
    """What a run that continues after ``epoch`` keeps of the log at ``path``; nothing is changed.

    Raises ``InputError`` if the log is missing, or if it ends with success and the run is not to ``extend`` it.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist, so there is no run to resume; leave out --resume")
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    events, _ = parse_events(lines)
    if not extend and any(e.key == "run_stop" and e.metadata.get("status") == "success" for e in events):
        raise InputError(f"the run in {path.parent} has reached its target; leave out --resume and use a new --run-dir")
    start = next((e for e in events if e.key == "run_start"), None)
    kept = [] if start is None else [e for e in events if _is_kept(e, epoch)]
    return OldLog(
        run_start_ms=None if start is None else int(start.time_ms),
        last_ms=int(max((e.time_ms for e in events), default=0)),
        values={e.key: e.value for e in kept if e.epoch is None},
        epoch=min(max((e.epoch or 0 for e in kept), default=0), math.inf if epoch is None else epoch),
        dropped=len([line for line in lines if line.strip()]) - len(kept),
        part=_free_part(path).name,
        text="".join(lines[e.line - 1] + "\n" for e in kept),
    )


def rewrite(path: Path, old: OldLog) -> None:
    """Leave in the log at ``path`` only what is kept of ``old``, and the whole old log beside it."""
    with replacing(path.with_name(old.part), durable=True) as temporary:
        shutil.copyfile(path, temporary)
    write_atomic(path, old.text)


def _is_kept(event: Event, epoch: float | None) -> bool:
    if event.key == "run_stop":
        return False
    if epoch is None or event.epoch is None:
        return True
    # An epoch starts where the one before it ends, and may have evaluations before its own end.
    return event.epoch - 1 < epoch if event.key == "epoch_start" else event.epoch <= epoch


def _free_part(path: Path) -> Path:
    number = 1
    while (part := path.with_name(f"{path.stem}-part{number}{path.suffix}")).exists():
        number += 1
    return part
