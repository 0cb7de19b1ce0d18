"""The folder that a run leaves behind: its files, how they are written safely, and how they are read."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.results.checkpoint_files import complete
from hpcbench.results.summary import Summary, finite
from staging.atomic import make_folder, replacing, sync_file, sync_folder
from staging.errors import DataError, InputError
from staging.formats.regular import read_bytes, read_text, refuse_special

if TYPE_CHECKING:
    import pandas

RESERVE = ".reserve"
CRASH = "crash.json"
"""What a study writes into the folder of a run that ended without saying why."""
JOB_FILE = re.compile(r"job\.sh|job\.json|holds|job-energy\.json|job(-.*)?\.log|hpcbench\.[oe]\d+|attempts")
"""Files that a batch job has in the folder before its run begins, and keeps there."""
RESERVE_BYTES = 256 * 1024


class RunFolder:
    """One run's folder. ``docs/architecture.md`` lists its files."""

    def __init__(self, path: str | Path) -> None:
        """Name the files of the folder ``path``; use ``create`` or ``open`` to touch it."""
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.system = self.path / "system.json"
        self.environment = self.path / "environment.json"
        self.mllog = self.path / "mllog.txt"
        self.steps = self.path / "steps.csv"
        self.epochs = self.path / "epochs.csv"
        self.noise_scale = self.path / "noise_scale.csv"
        self.trust_ratios = self.path / "trust_ratios.csv"
        self.ranks = self.path / "ranks.csv"
        self.summary = self.path / "summary.json"
        self.staging = self.path / "staging.json"
        self.examples = self.path / "examples.npz"
        self.scores = self.path / "scores.npz"
        self.checkpoints = self.path / "checkpoints"
        self.report = self.path / "report.html"

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """Make a new folder. Raises ``InputError`` when it already holds something or cannot be made."""
        folder = cls(path)
        try:
            make_folder(folder.path)
            if any(not JOB_FILE.fullmatch(entry.name) for entry in folder.path.iterdir()):
                to_resume = "add --resume to continue it, or " if complete(folder.checkpoints) else ""
                raise InputError(f"run folder {path} exists and is not empty; {to_resume}give another --run-dir")
            folder.reserve()
        except OSError as error:
            raise InputError(f"run folder {path} cannot be made ({error.strerror}); give another --run-dir") from error
        return folder

    def set_aside(self) -> Path | None:
        """Move what an earlier attempt left into ``attempts/N``; return that folder, ``None`` if there was nothing."""
        left = (
            [entry for entry in self.path.iterdir() if not JOB_FILE.fullmatch(entry.name)] if self.path.is_dir() else []
        )
        if not left:
            return None
        attempts = self.path / "attempts"
        attempts.mkdir(exist_ok=True)
        aside = attempts / str(
            1 + max((int(entry.name) for entry in attempts.iterdir() if entry.name.isdecimal()), default=0)
        )
        aside.mkdir()
        for entry in left:
            entry.rename(aside / entry.name)
        return aside

    @classmethod
    def open(cls, path: str | Path, needs: Sequence[str] = ("config.yaml", "mllog.txt")) -> RunFolder:
        """Open a folder that a run wrote. Raises ``InputError`` that names which of the files ``needs`` are missing."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise InputError(f"run folder {path} does not exist; give the folder that 'hpcbench train' printed")
        if missing := [name for name in needs if not (folder.path / name).exists()]:
            raise InputError(
                f"{path} is not a complete run folder: it lacks {' and '.join(missing)}; "
                "give the folder that 'hpcbench train' printed"
            )
        return folder

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the resolved configuration as YAML."""
        import yaml

        write_atomic(self.config, yaml.safe_dump(dict(config), sort_keys=False))

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write ``values`` as the JSON file ``name``; numbers that are not finite become null."""
        write_atomic(self.path / name, json.dumps(finite(dict(values)), indent=2) + "\n")

    def write_summary(self, summary: Summary) -> None:
        """Write ``summary.json``."""
        write_atomic(self.summary, summary.to_json())

    def write_ranks(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write ``ranks.csv``, a row for each rank; what is unset becomes empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(self.ranks, text.getvalue())

    def append_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Append ``rows`` to the table ``name``, such as ``steps.csv``; the first row ever written fixes the columns.

        The operating system has the rows when this returns, and the disk has them after the next ``sync``. Raises
        ``ValueError`` for a row with other columns.
        """
        if not rows:
            return
        path = self.path / name
        header = _header(path)
        columns = header or list(rows[0])
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="raise")
        if not header:
            writer.writeheader()
        for row in rows:
            if set(row) != set(columns):
                raise ValueError(f"{name} has the columns {columns}, the row has {list(row)}")
            writer.writerow(row)
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(text.getvalue())

    def truncate_rows(self, name: str, step: int) -> None:
        """Drop the rows of the table ``name`` after optimizer step ``step``: a resumed run writes them again.

        A row that was cut off, for example by a full disk, is dropped too. A table without steps stays as it is.
        """
        columns, rows = self._rows(name)
        if not columns:
            (self.path / name).unlink(missing_ok=True)
        elif "step" in columns:
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([columns, *(row for number, row in rows if number <= step)])
            write_atomic(self.path / name, text.getvalue())

    def steps_of(self, name: str) -> set[int]:
        """Optimizer steps that have a whole row in the table ``name``; none where there is no table."""
        return {number for number, _ in self._rows(name)[1]}

    def set_staging_aside(self) -> None:
        """Rename the staging report of an earlier attempt to ``staging-part<k>.json``: the next may find all there."""
        if self.staging.exists():
            self.staging.rename(self._staging_part(len(self.staging_reports())))

    def staging_reports(self) -> list[Path]:
        """The staging reports of all attempts, in order; none where nothing was staged."""
        numbers = itertools.takewhile(lambda k: self._staging_part(k).exists(), itertools.count(1))
        return [*map(self._staging_part, numbers), *([self.staging] if self.staging.exists() else [])]

    def _staging_part(self, number: int) -> Path:
        return self.staging.with_name(f"{self.staging.stem}-part{number}.json")

    def sync(self) -> None:
        """Wait until the disk has all that is written so far of the tables and the log. Raises ``OSError``."""
        for path in (*sorted(self.path.glob("*.csv")), self.mllog):
            if path.exists():
                sync_file(path)
        sync_folder(self.path)

    def read_summary(self) -> Summary:
        """The run's summary. Raises ``DataError``."""
        return Summary.from_json(self._text(self.summary), self.summary)

    def read_epochs(self) -> pandas.DataFrame:
        """One row per epoch. Raises ``DataError``."""
        return self._table(self.epochs)

    def read_noise_scale(self) -> pandas.DataFrame:
        """One row per measurement of the gradient noise scale. Raises ``DataError``."""
        return self._table(self.noise_scale)

    def read_trust_ratios(self) -> pandas.DataFrame:
        """One row per layer and recorded step. Raises ``DataError``."""
        return self._table(self.trust_ratios)

    def read_ranks(self) -> pandas.DataFrame:
        """One row per rank: what it measured in the steps after the warm-up. Raises ``DataError``."""
        return self._table(self.ranks)

    def read_steps(self) -> pandas.DataFrame:
        """One row per optimizer step. Raises ``DataError``."""
        return self._table(self.steps)

    def reserve(self) -> None:
        """Keep a little space, so that a run that fills the disk can still write why it ended.

        Raises ``DataError`` where something other than a file is in its place, such as a pipe, which would block.
        """
        path = self.path / RESERVE
        if os.path.lexists(path):
            refuse_special(path)
        path.write_bytes(b"\0" * RESERVE_BYTES)

    def release(self) -> None:
        """Give back the reserved space at the end of a run."""
        release_reserve(self.path)

    def _rows(self, name: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
        """The columns of a table, and its whole rows with their steps; no columns where there is no table."""
        try:
            text = read_bytes(self.path / name).decode("utf-8", errors="replace")
        except FileNotFoundError:
            return [], []
        records = _whole_records(text)
        columns = next(records, [])
        if "step" not in columns:
            return columns, []
        column = columns.index("step")
        return columns, [
            (int(row[column]), row) for row in records if len(row) == len(columns) and row[column].isdecimal()
        ]

    def _text(self, path: Path) -> str:
        try:
            return read_text(path)
        except OSError as error:
            raise DataError(path, f"cannot be read ({error.strerror})", "the run may not have finished") from error

    def _table(self, path: Path) -> pandas.DataFrame:
        import pandas

        text = self._text(path)
        try:
            return pandas.read_csv(io.StringIO(text))
        except ValueError as error:
            raise DataError(path, f"is not a table ({error})", "the run may not have finished") from error


def earlier_configs(path: Path) -> list[Path]:
    """The configurations that attempts in the run folder ``path`` left there or set aside, the latest first."""
    aside = sorted((path / "attempts").glob("[0-9]*"), key=lambda folder: (len(folder.name), folder.name), reverse=True)
    return [config for folder in (path, *aside) if (config := RunFolder(folder).config).exists()]


def default_path(application: str, preset: str, root: str | Path = "runs") -> Path:
    """A free name for a run folder: ``runs/<application>-<preset>-<UTC time>``, then with ``-2``, ``-3``, ..."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    first = Path(root) / f"{application}-{preset}-{stamp}"
    path, count = first, 1
    while os.path.lexists(path):
        count += 1
        path = first.with_name(f"{first.name}-{count}")
    return path


def create_default(application: str, preset: str, root: str | Path = "runs") -> RunFolder:
    """A new run folder with the name that ``default_path`` gives, of which no other run gets the same.

    Runs of one sweep start within the same second. Raises ``InputError`` if it cannot be made.
    """
    while True:
        path = default_path(application, preset, root)
        with contextlib.suppress(OSError):  # which ``RunFolder.create`` reports
            make_folder(path.parent)
            try:
                path.mkdir()
            except FileExistsError:
                continue
        return RunFolder.create(path)


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` durably under a temporary name, then rename it; on a full disk, free the reserve and retry."""
    try:
        _write_and_rename(path, text)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not release_reserve(path.parent):
            raise
        _write_and_rename(path, text)


def release_reserve(folder: Path) -> bool:
    """Delete the reserve of a run folder; return whether there was one."""
    try:
        (folder / RESERVE).unlink()
    except FileNotFoundError:
        return False
    return True


def _write_and_rename(path: Path, text: str) -> None:
    with replacing(path, durable=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except FileNotFoundError:
        return []


def _whole_records(text: str) -> Iterator[list[str]]:
    """The records of a table up to the first that was cut off, within quotes or before its line ended."""
    whole = text[: text.rfind("\n") + 1]
    with contextlib.suppress(csv.Error):  # strict: quotes that are not closed are an error
        yield from csv.reader(io.StringIO(whole, newline=""), strict=True)
