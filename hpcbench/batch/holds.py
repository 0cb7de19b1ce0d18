"""Which job and attempt holds a run folder: the files in ``holds/`` that say so.

``holds/`` has a numbered file for each attempt of a job that began: ``1.json``, ``2.json``, ... The newest is the hold.
Exactly one process gets the next number, even on a filesystem that several nodes share. Beside each file,

- ``N.end`` has the time at which the script of the attempt ended, in seconds since 1970, and its exit code;
- ``N.next`` says that the attempt hands over to another one, and has what the scheduler printed about that one's job.
  It is empty while that is not known.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hpcbench.config.bounds import within
from hpcbench.config.json_record import read_record
from hpcbench.results.run_folder import write_atomic
from staging.atomic import make_folder, sync_file, sync_folder, take_name
from staging.errors import DataError
from staging.formats.regular import read_text
from staging.number_options import MOST_NODES

LATEST_S = 253_402_300_799
"""The end of the year 9999, the last year that a date can have."""
HOLDS = "holds"
"""Name of the folder in the run folder."""


@dataclass(frozen=True)
class Hold:
    """One attempt of a job that holds, or held, a run folder."""

    job_id: str
    """As the script knows it."""
    attempt: int = field(metadata=within(1, 10**9))
    scheduler: str
    mark: str = ""
    nodes: int = field(default=1, metadata=within(0, MOST_NODES))
    """Nodes of the job; 0 for a command that holds the folder while it moves it."""
    process: int = field(default=0, metadata=within(0, 2**31))
    """Process id of the script, on ``host``."""
    host: str = ""
    began: float = field(default=0.0, metadata=within(0, LATEST_S))
    """Seconds since 1970."""
    number: int = 0
    """Number of the file; 0 for a hold that has not taken the folder."""

    @classmethod
    def here(cls, job_id: str, attempt: int, scheduler: str, mark: str, nodes: int, process: int) -> Hold:
        """The hold that a script on this machine asks for."""
        return cls(job_id, attempt, scheduler, mark, nodes, process, socket.gethostname(), time.time())


def stem(folder: Path, number: int) -> Path:
    """The hold's name without its ending, as job scripts know it."""
    return folder / HOLDS / str(number)


def read_holds(folder: Path) -> list[Hold]:
    """All holds of a run folder, oldest first. Raises ``DataError`` for a damaged one."""
    return [read_hold(folder, number) for number in numbers(folder)]


def newest_hold(folder: Path) -> Hold | None:
    """The hold of a run folder; ``None`` if no job has begun in it. Raises ``DataError``."""
    hold_numbers = numbers(folder)
    return read_hold(folder, hold_numbers[-1]) if hold_numbers else None


def numbers(folder: Path) -> list[int]:
    """The numbers of the holds, in order."""
    try:
        names = [path.name for path in (folder / HOLDS).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"(\d+)\.json", name)))


def read_hold(folder: Path, number: int) -> Hold:
    """One hold. Raises ``DataError``."""
    path, advice = stem(folder, number).with_suffix(".json"), "remove it if no job works in the run folder"
    try:
        return replace(read_record(Hold, path, advice), number=number)
    except FileNotFoundError as error:
        raise DataError(path, f"is damaged ({error.strerror})", advice) from error


def write_hold(folder: Path, hold: Hold, number: int) -> Path:
    """Make the hold with this number; returns its name without ending. Raises ``FileExistsError`` if another has it."""
    name = stem(folder, number)
    make_folder(name.parent)
    values = {key: value for key, value in asdict(hold).items() if key != "number"}
    part = name.with_name(f".{number}.{secrets.token_hex(6)}")
    try:
        part.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        sync_file(part)
        take_name(part, name.with_suffix(".json"))
    finally:
        part.unlink(missing_ok=True)
    sync_folder(name.parent)
    return name


def has_ended(folder: Path, hold: Hold) -> bool:
    """Whether the script of the attempt came to its end."""
    return stem(folder, hold.number).with_suffix(".end").exists()


def end_time(folder: Path, hold: Hold) -> float | None:
    """When the script of the attempt ended, in seconds since 1970; ``None`` if it did not, or was killed."""
    path = stem(folder, hold.number).with_suffix(".end")
    try:
        first = (read_text(path).split() or [""])[0]
        return float(first) if first.isdecimal() else path.stat().st_mtime
    except FileNotFoundError:
        return None


def last_exit_code(folder: Path) -> int | None:
    """The exit code of the script of the newest attempt; ``None`` if none has begun, or it recorded no end."""
    hold = newest_hold(folder)
    try:
        words = [] if hold is None else read_text(stem(folder, hold.number).with_suffix(".end")).split()
    except FileNotFoundError:
        return None
    return int(words[1]) if len(words) == 2 and words[1].isdecimal() else None


def announce_continuation(folder: Path, hold: Hold) -> None:
    """Record that the attempt hands over to another one, before that one is submitted."""
    write_atomic(stem(folder, hold.number).with_suffix(".next"), "")


def write_continuation(folder: Path, hold: Hold, job_id: str) -> None:
    """Record the job that an attempt hands over to, after it was found."""
    write_atomic(stem(folder, hold.number).with_suffix(".next"), f"{job_id}\n")


def continuation(folder: Path, hold: Hold) -> tuple[str, float] | None:
    """What the scheduler printed about the job that the attempt hands over to, and when; ``None`` if there is none."""
    path = stem(folder, hold.number).with_suffix(".next")
    try:
        return read_text(path), path.stat().st_mtime
    except FileNotFoundError:
        return None
