"""The journal of a destination: who began a staging into it and how it ended, so that a kill can be reported."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from staging.bookkeeping import BOOKKEEPING
from staging.ledger.jsonl import append_lines, is_there, read_lines, start_file
from staging.one_line import one_line
from staging.ranks.world import Place

NAME = "journal.jsonl"
DONE = "done"
KILLED = "killed"
ID_CHARACTERS = 8
END_LINE = 256
"""More bytes than the line of a rank that ends well has, and line feeds, and digits that ranks' starts differ by."""
LATEST = 253402300800
"""Seconds from 1970 to the year 10000; numbers from here on are not times."""


@dataclass(frozen=True)
class Start:
    """A process that began to stage."""

    id: str
    """ID of the staging, the same on all its ranks."""
    time: float
    """Seconds since 1970."""
    node: str
    rank: int
    pid: int
    born: int
    """When the process started, in ticks since the node's; tells it from a later one of the same ``pid``."""
    command: str
    selection: tuple[str, ...] | None = None
    """The command-line arguments that choose its files of the source, if it staged from a source."""
    by_names: bool = False
    """Whether its caller named its files of the source, as a training does, so that no arguments choose them."""

    @classmethod
    def of_this_process(
        cls, staging: str, place: Place, command: str, selection: Sequence[str] | None = None, *, by_names: bool = False
    ) -> Start:
        """This process, as ``Journal.start`` takes it."""
        born, words = _born(os.getpid()) or 0, None if selection is None else tuple(selection)
        return cls(staging, time.time(), place.node_name, place.rank, os.getpid(), born, command, words, by_names)

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.time))
        return one_line(f"staging {self.id} of {when} was killed on node {self.node}: rank {self.rank}, pid {self.pid}")


def bytes_added(place: Place, command: str, selection: Sequence[str] | None = None) -> int:
    """The most bytes that the ranks of this node add to the journal when ``command`` stages once to its end."""
    start = Start.of_this_process("0" * ID_CHARACTERS, place, command, selection)
    return place.local_size * (len(_start_line(start)) + END_LINE)


class Journal:
    """The journal below ``destination``; several processes may append to it at once."""

    def __init__(self, destination: Path) -> None:
        self.path = destination / BOOKKEEPING / NAME

    def start(self, start: Start) -> None:
        """Record that this process begins to stage, and wait until the disk has it.

        Unfinished files alone would not show whose they are. Raises ``DataError`` if it can't be written.
        """
        start_file(self.path, {"what": "hpcbench staging journal"})
        append_lines(self.path, [_start_line(start)], durable=True)

    def end(self, start: Start, outcome: str = DONE, reason: str = "") -> None:
        """Record how it ended: ``done``, which a crash does not undo, ``aborted`` or ``killed``, and why."""
        line = {"event": "end", "id": start.id, "rank": start.rank, "pid": start.pid, "time": time.time()}
        text = json.dumps(line | {"outcome": outcome, "reason": reason})
        append_lines(self.path, [text], durable=outcome == DONE)

    def unfinished(self, node: str) -> list[Start]:
        """Processes that began, did not record how they ended, and no longer run; oldest first.

        A process is looked for on ``node``, the name of this node; one of another node counts as gone, since the caller
        holds the destination. ``end(start, KILLED)`` takes one off this list.
        """
        starts, outcomes = self._read()
        return [start for start in starts if _key(start) not in outcomes and not (start.node == node and _alive(start))]

    def is_done(self) -> bool:
        """Whether all ranks here finished the last staging; also true if none ever began."""
        starts, outcomes = self._read()
        return all(outcomes.get(_key(start)) == DONE for start in starts if start.id == starts[-1].id)

    def last_selection(self) -> tuple[str, ...]:
        """The arguments that chose the files of the last staging from a source; none if the journal does not say."""
        start = self._last_from_source()
        return () if start is None or start.selection is None else start.selection

    def was_by_names(self) -> bool:
        """Whether the caller of the last staging from a source named its files."""
        start = self._last_from_source()
        return start is not None and start.by_names

    def _last_from_source(self) -> Start | None:
        starts = [start for start in self._read()[0] if start.by_names or start.selection is not None]
        return starts[-1] if starts else None

    def _read(self) -> tuple[list[Start], dict[tuple[str, int, int], str]]:
        starts: list[Start] = []
        outcomes: dict[tuple[str, int, int], str] = {}
        for item in read_lines(self.path) if is_there(self.path) else ():
            try:
                if item["event"] == "start":
                    starts.append(_start(item))
                else:
                    outcomes[str(item["id"]), int(item["rank"]), int(item["pid"])] = str(item["outcome"])
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
        return starts, outcomes


def _start_line(start: Start) -> str:
    return json.dumps({"event": "start", **asdict(start)})


def _start(item: dict[str, Any]) -> Start:
    numbers, when = (int(item["rank"]), int(item["pid"]), int(item["born"])), float(item["time"])
    if not 0 <= when < LATEST:
        raise ValueError("no time")
    words: Any = item.get("selection")
    selection = tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None
    by_names = item.get("by_names") is True
    return Start(str(item["id"]), when, str(item["node"]), *numbers, str(item["command"]), selection, by_names)


def _key(start: Start) -> tuple[str, int, int]:
    return start.id, start.rank, start.pid


def _alive(start: Start) -> bool:
    return _born(start.pid) == start.born


def _born(pid: int) -> int | None:
    """When a process started, in ticks since the machine did (proc(5), field 22); ``None`` if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
