"""Shows the progress of a long task: a bar on a terminal, a plain line now and then elsewhere, or nothing."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from staging.print_line import print_line

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

INTERVAL_S = 5.0


class Progress:
    """Counts ``total`` items of ``unit`` under ``label``; a context manager that writes to ``stream``.

    On a terminal it draws a bar with rate and time left. Elsewhere it prints a line at most every ``interval_s``
    seconds and one at the end. It is silent when ``enabled`` is false.
    """

    def __init__(
        self,
        total: int,
        label: str,
        unit: str,
        enabled: bool = True,
        stream: TextIO | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.total = total
        self.done = 0
        self._label = label
        self._unit = unit
        self._enabled = enabled
        self._stream = stream or sys.stderr
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._start = self._printed = time.monotonic()

    def __enter__(self) -> Self:
        self._start = self._printed = time.monotonic()
        if self._enabled and self._stream.isatty():
            self._bar = _bar(self._stream)
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=self.total, unit=self._unit, fields="", rate="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._enabled:
            self._print("" if error is None else ", stopped")

    def advance(self, n: int = 1, **fields: object) -> None:
        """Count ``n`` more items; ``fields`` are shown after, floats with four significant digits. For any thread."""
        with self._lock:
            self.done += n
            if not self._enabled:
                return
            now = time.monotonic()
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self.done, fields=_format(fields), rate=self._rate(now))
            elif self.done < self.total and now - self._printed >= self._interval_s:
                self._print(_format(fields))

    def _rate(self, now: float) -> str:
        return f"{self.done / max(now - self._start, 1e-9):.3g} {self._unit}/s"

    def _print(self, tail: str) -> None:
        self._printed = now = time.monotonic()
        line = f"{self._label}: {self.done}/{self.total} {self._unit}, {self._rate(now)}, {now - self._start:.1f} s"
        print_line(line + tail, self._stream)


def _format(fields: dict[str, object]) -> str:
    return "".join(
        f"  {name} {value:.4g}" if isinstance(value, float) else f"  {name} {value}" for name, value in fields.items()
    )


def _bar(stream: TextIO) -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}  {task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[fields]}"),
        console=Console(file=stream),
    )
