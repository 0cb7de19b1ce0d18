"""What a resumed run keeps of its log: the clock keeps running, work that is done again is logged once."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.results.events import Event, parse_events
from hpcbench.results.run_folder import write_atomic
from staging.errors import InputError


@dataclass(frozen=True)
class OldLog:
    """What a run's log held when the run was resumed."""

    run_start_ms: int | None
    """When the clock started; unset where the run ended before it."""
    last_ms: int
    """When the last line was written."""
    values: dict[str, Any]
    """Values of the lines without an epoch, by key."""
    epoch: float
    """Last epoch that was kept, or the part of one at its last evaluation."""
    dropped: int
    """Lines that were not kept: ``run_stop``, later epochs, a line cut off."""
    part: str
    """File name under which the old log was kept."""


def open_resumed(path: Path, epoch: float | None, write: bool = True) -> OldLog:
    """Rewrite the log at ``path`` for a run that goes on after ``epoch``, keeping the old one beside it.

    With ``write=False`` (ranks other than 0) nothing is changed. Raises ``InputError`` for a missing or finished log.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist, so there is no run to resume; leave out --resume")
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    events, _ = parse_events(lines)
    if any(e.key == "run_stop" and e.metadata.get("status") == "success" for e in events):
        raise InputError(f"the run in {path.parent} has reached its target; leave out --resume and use a new --run-dir")
    start = next((e for e in events if e.key == "run_start"), None)
    kept = [] if start is None else [e for e in events if _is_kept(e, epoch)]
    part = _free_part(path)
    if write:
        shutil.copyfile(path, part)
        write_atomic(path, "".join(lines[e.line - 1] + "\n" for e in kept))
    return OldLog(
        run_start_ms=None if start is None else int(start.time_ms),
        last_ms=int(max((e.time_ms for e in events), default=0)),
        values={e.key: e.value for e in kept if e.epoch is None},
        epoch=min(max((e.epoch or 0 for e in kept), default=0), math.inf if epoch is None else epoch),
        dropped=len([line for line in lines if line.strip()]) - len(kept),
        part=part.name,
    )


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
