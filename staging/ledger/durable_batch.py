"""Makes landed files durable many at a time: one flush of the filesystem, then their names in the manifest."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from weakref import finalize

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger.manifest import Manifest

# The most that a kill costs: this much is moved again. Larger batches gain nothing on a fast disk, which takes 4 GiB
# in about a second; smaller ones leave it idle between flushes.
FILES = 4096
BYTES = 4 << 30
SECONDS = 10.0


class DurableBatch:
    """Collects files that landed below ``destination`` and names them in ``manifest`` once they are durable.

    Used by many threads. A batch is committed after ``files`` files, ``size`` bytes or ``seconds`` seconds; call
    ``commit`` at the end. The system tells of lost data once, and whoever had the filesystem open: so the batch is made
    before the first file is written, and after a loss nothing more is named.
    """

    def __init__(
        self, manifest: Manifest, destination: Path, files: int = FILES, size: int = BYTES, seconds: float = SECONDS
    ) -> None:
        self.syncs = 0
        """Flushes of the filesystem so far."""
        self.sync_seconds = 0.0
        """Seconds spent in them, without waiting for another thread's."""
        self._manifest = manifest
        self._destination = destination
        self._limits = (files, size, seconds)
        self._waiting: list[Landed] = []
        self._bytes = 0
        self._since = time.monotonic()
        self._adding = threading.Lock()
        self._committing = threading.Lock()
        self._has_lost = False
        self._opened: int | None = open_folder(destination)
        self._let_go = finalize(self, os.close, self._opened)

    def add(self, landed: Sequence[Landed]) -> None:
        """Take all files that came from one source entry; commits if a limit is reached."""
        with self._adding:
            self._waiting += landed
            self._bytes += sum(file.size for file in landed)
            due = self._due()
        if due:
            self._write(even_if_few=False)

    def commit(self) -> None:
        """Return when all files added so far are durable and named.

        Raises ``DataError`` if the filesystem could not take them; they are then not named.
        """
        self._write(even_if_few=True)

    def commit_within(self, seconds: float) -> None:
        """Commit what can be committed in ``seconds``, from any thread: for the end of a staging that failed."""

        def commit() -> None:
            with suppress(DataError):
                self.commit()

        thread = threading.Thread(target=commit, name="stage-keep", daemon=True)
        thread.start()
        thread.join(seconds)

    def close(self) -> None:
        """Let go of the filesystem, so that it can be unmounted; not while a commit is still under way."""
        if self._committing.acquire(blocking=False):
            self._opened = None
            self._let_go()
            self._committing.release()

    def _due(self) -> bool:
        files, size, seconds = self._limits
        late = time.monotonic() - self._since >= seconds
        return bool(self._waiting) and (len(self._waiting) >= files or self._bytes >= size or late)

    def _write(self, even_if_few: bool) -> None:
        with self._committing:
            with self._adding:
                if not (self._due() or (even_if_few and self._waiting)):
                    return  # another thread has written them meanwhile
                if self._has_lost:
                    raise DataError(self._destination, "its filesystem has lost what was written", "check the disk")
                landed, self._waiting, self._bytes, self._since = self._waiting, [], 0, time.monotonic()
            start = time.perf_counter()
            try:
                sync_filesystem(self._destination, self._opened)
            except DataError:
                self._has_lost = True
                raise
            self.syncs += 1
            self.sync_seconds += time.perf_counter() - start
            self._manifest.append(landed)


def sync_filesystem(folder: Path, opened: int | None = None) -> None:
    """Wait until the disk has everything written to the filesystem of ``folder`` (``syncfs``; else ``sync``).

    ``opened`` is a descriptor of the folder. Raises ``DataError`` if the system says that data were lost since it was
    opened, or, without one, that some were lost and nobody has been told.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = open_folder(folder) if opened is None else opened
    try:
        if syncfs(descriptor) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise DataError(folder, f"its filesystem could not store what was written ({reason})", "check the disk")
    finally:
        if opened is None:
            os.close(descriptor)


def open_folder(folder: Path) -> int:
    """A descriptor of ``folder``. Raises ``DataError``."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(folder, f"cannot be opened any more ({error.strerror})", "stage again") from None
