"""The folder of a study: its definition, its run folders, and a lock that lets one process at a time work in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpcbench.results.run_folder import CRASH, write_atomic
from hpcbench.study.run_status import RunStatus, read_run_status
from staging.errors import Aborted, DataError, InputError
from staging.formats.regular import read_text

SCHEMA = 1
LARGE = ("steps.csv", "report.html", "scores.npz", "examples.npz", ".reserve")
"""Files of a run for which its study has no use."""


class StudyFolder:
    """``study.json``, ``runs/<name>/``, ``logs/<name>.txt`` and, for jobs that pack runs, ``jobs/<number>/``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.definition = path / "study.json"
        self.runs = path / "runs"
        self.logs = path / "logs"
        self.jobs = path / "jobs"
        self.results = path / "results.csv"
        self.table = path / "table.txt"
        self.page = path / "study.html"

    def run(self, name: str) -> Path:
        """The folder of the run ``name``."""
        return self.runs / name

    def log(self, name: str) -> Path:
        """The file with what the run ``name`` printed."""
        return self.logs / f"{name}.txt"

    def read(self) -> dict[str, Any] | None:
        """The definition; ``None`` if there is none yet. Raises ``DataError`` for one that cannot be read."""
        return read_definition(self.definition, SCHEMA, "definition of a study")

    def write(self, definition: dict[str, Any]) -> None:
        """Write the definition."""
        write_atomic(self.definition, json.dumps({"schema": SCHEMA, **definition}, indent=2) + "\n")

    def status(self, name: str) -> RunStatus:
        """The status of the run ``name``, from its folder alone."""
        return read_run_status(self.run(name))

    def clear(self, name: str) -> None:
        """Remove what the run ``name`` left, for a new start; of a folder elsewhere, only the link to it."""
        if self.run(name).is_symlink():
            self.run(name).unlink()
        elif self.run(name).exists():
            shutil.rmtree(self.run(name))

    def resumable(self, name: str) -> bool:
        """Whether the run has a finished checkpoint and the files that continuing needs."""
        run = self.run(name)
        whole = all((run / file).exists() for file in ("config.yaml", "mllog.txt"))
        return whole and any(path.with_suffix(".json").exists() for path in (run / "checkpoints").glob("epoch-*.pt"))

    def forgive(self, name: str) -> None:
        """Forget that the run failed, so that what it left counts as that of an interrupted run."""
        (self.run(name) / CRASH).unlink(missing_ok=True)
        if self.status(name).status == "failed":
            (self.run(name) / "summary.json").unlink(missing_ok=True)

    def tidy(self, name: str, keep: bool) -> None:
        """Remove the checkpoints and large files of a run that ended, unless ``keep`` is set."""
        if keep:
            return
        shutil.rmtree(self.run(name) / "checkpoints", ignore_errors=True)
        for file in LARGE:
            (self.run(name) / file).unlink(missing_ok=True)
        if read_run_status(self.run(name)).status != "failed":
            self.log(name).unlink(missing_ok=True)


def read_definition(path: Path, schema: int, kind: str) -> dict[str, Any] | None:
    """What the JSON file ``path`` holds; ``None`` if there is no such file.

    Raises ``DataError`` for a file that cannot be read, or is not a ``kind`` of this schema.
    """
    try:
        definition = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, f"cannot be read ({error})", "restore it or give another folder") from None
    if not isinstance(definition, dict) or definition.get("schema") != schema:
        raise DataError(path, f"is no {kind} of schema {schema}", "give another folder")
    return definition


def begin_copy(folder: StudyFolder, out: Path) -> StudyFolder:
    """Make the folder ``out`` for a copy of a study. Raises ``InputError`` unless it is new or such a copy."""
    copy = StudyFolder(out)
    try:
        if out.exists() and any(out.iterdir()) and not copy.definition.exists():
            raise InputError(f"{out} is not empty and holds no study; give a new folder with --out")
        if out.resolve() == folder.path.resolve():
            raise InputError(f"--out {out} is the study itself; give another folder")
        copy.runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written ({error.strerror}); give another folder") from None
    return copy


def begin_run_copy(path: Path, files: Sequence[str]) -> None:
    """Make the folder of a run in a copy of a study, without those of ``files`` that an earlier copy left there."""
    path.mkdir(exist_ok=True)
    for name in files:
        (path / name).unlink(missing_ok=True)


def nothing_began(folder: StudyFolder) -> bool:
    """Whether no run and no job has left anything; removes the empty folders of jobs that were refused.

    Whatever somebody removes in the meantime counts as nothing.
    """
    paths: list[Path] = []
    for parent in (folder.runs, folder.jobs):
        with suppress(FileNotFoundError):
            paths += parent.iterdir()
    for path in paths:
        with suppress(FileNotFoundError):
            if not any(path.iterdir()):
                path.rmdir()
    return not any(path.exists() for path in paths)


@contextmanager
def begun(folder: StudyFolder, definition: dict[str, Any], report: Callable[[], object]) -> Iterator[None]:
    """Write the definition; the caller makes the runs within. ``InputError`` and ``Aborted`` from there are re-raised.

    Before that, the definition of a new study without a started run is removed, and any other gets its ``report``.
    """
    is_new = folder.read() is None
    folder.write(definition)
    try:
        yield
    except (InputError, Aborted):
        if is_new and nothing_began(folder):
            folder.definition.unlink(missing_ok=True)
            raise
        with suppress(InputError, OSError):  # why it ended matters more than why there is no page
            report()
        raise


@contextmanager
def held(folder: StudyFolder) -> Iterator[int]:
    """Make the folder and hold it for this process and those that inherit the open file; yields its descriptor.

    If no study began in it, the folder is removed in the end, or emptied if it existed before. Raises ``InputError`` if
    another process works in it, and for a folder that holds something else.
    """
    existed = folder.path.exists()
    descriptor = open_lock(folder)
    try:
        take(descriptor, folder.path)
        try:
            yield descriptor
        finally:
            with suppress(OSError):  # it hides no error; somebody may have removed the folder in the meantime
                if not folder.definition.exists() and not any(folder.runs.iterdir()):
                    remove_unused(folder, existed)
    finally:
        os.close(descriptor)


def remove_unused(folder: StudyFolder, existed: bool) -> None:
    """Remove a folder in which no study began. If it ``existed`` before, only what ``held`` and a start make in it."""
    if not existed:
        shutil.rmtree(folder.path)
        return
    (folder.path / ".lock").unlink(missing_ok=True)
    for path in (folder.runs, folder.logs, folder.jobs):
        with suppress(OSError):  # missing, a link, or not empty
            path.rmdir()


def open_lock(folder: StudyFolder) -> int:
    """Make the folder, and open the file whose lock shows who works in it."""
    try:
        if folder.path.exists() and not folder.definition.exists() and not only_ours(folder.path):
            raise InputError(f"{folder.path} is not empty and holds no study; give a new folder with --study-dir")
        folder.runs.mkdir(parents=True, exist_ok=True)
        folder.logs.mkdir(exist_ok=True)
        return os.open(folder.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        advice = "make it writable, or continue in a copy" if folder.definition.exists() else "give another --study-dir"
        raise InputError(f"{folder.path} cannot be written ({error.strerror}); {advice}") from None


def only_ours(path: Path) -> bool:
    """Whether a folder without a definition holds no more than an interrupted start leaves."""
    return path.is_dir() and all(
        entry.name in (".lock", "runs", "logs") or entry.name.startswith(".study.json.") for entry in path.iterdir()
    )


def take(descriptor: int, path: Path) -> None:
    """Lock the open file, and write its holder into it. Raises ``InputError`` if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
        raise InputError(
            f"{path} is held by {holder} or a run that it started; wait for it, or give another --study-dir"
        ) from None
    except OSError:
        return  # a filesystem without locks
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {os.uname().nodename}".encode(), 0)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); free some space there") from None
