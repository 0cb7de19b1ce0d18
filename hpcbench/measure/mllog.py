"""The official log of a run: ``:::MLLOG`` lines, written with the ``mlperf_logging`` package."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import platform
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mlperf_logging.mllog.mllog import MLLogger

from hpcbench.exits import Cause
from hpcbench.frame_lookups import cheap_frame_lookups
from hpcbench.measure.mllog_resume import FinishedLog, OldLog, read_old, rewrite
from hpcbench.results.run_folder import release_reserve
from hpcbench.results.summary import Status

if TYPE_CHECKING:
    from hpcbench.application import Application
    from hpcbench.config.schema import RunConfig

BATCH, ERROR, ACCURACY = "global_batch_size", "eval_error", "eval_accuracy"
TRAPS = (BATCH, ERROR, ACCURACY)
"""The checker of reference convergence points matches these words anywhere in a line, not only in its key."""

BEFORE_THE_CLOCK = ("cache_clear", "init_start", "init_stop", "run_start")
"""Events of the first process only: a resumed run does not log them again."""


class RunLog:
    """The log of one run; methods are named after its events. Rank 0 writes (``enabled``), others only keep the clock.

    Every line has reached the operating system when a method returns, and the disk when the next checkpoint is
    complete. After the first ``run_stop`` nothing more is written. All methods may be called from any thread. They
    raise ``OSError`` if the file cannot be written.
    """

    def __init__(self, path: Path, enabled: bool = True, old: OldLog | None = None) -> None:
        """Start a new log at ``path``, or prepare to continue after ``old`` (see ``resume``)."""
        self.path = path
        self.enabled = enabled
        self.resumed = old is not None and old.run_start_ms is not None
        self.run_start_ms = old.run_start_ms if old else None
        self.run_stop_ms: int | None = None
        self._logged = old.values if old else {}
        self._lock = threading.RLock()
        self._stopped = False
        self._last_ms = old.last_ms if old else 0
        self._old = old
        # With delay, a log that is not enabled never opens its file, and one that continues opens it once rewritten.
        delay = not enabled or old is not None
        self._handler = _StrictFileHandler(path, mode="a" if old else "w", encoding="utf-8", delay=delay)
        self._writer = _writer(self._handler)

    @classmethod
    def finished(cls, path: Path, end: FinishedLog) -> RunLog:
        """Return the log of a run that has ended and only lacks its report.

        Nothing more is written, and the clock stays stopped.
        """
        log = cls(path, enabled=False)
        log.run_start_ms, log.run_stop_ms = end.run_start_ms, end.run_stop_ms
        log.close()
        return log

    @property
    def is_finished(self) -> bool:
        """Whether the clock has stopped."""
        return self.run_stop_ms is not None

    @classmethod
    def resume(cls, path: Path, enabled: bool = True, epoch: float | None = None, *, extend: bool = False) -> RunLog:
        """The log at ``path``, to continue after ``epoch``, the checkpoint's last evaluated one; ``None`` keeps all.

        Nothing is changed until ``rewrite``, which comes before the first event. Raises ``InputError`` if there is no
        log, or if it ends with success and is not to be extended.
        """
        return cls(path, enabled, read_old(path, epoch, extend=extend))

    def rewrite(self) -> None:
        """Let a resumed log end where the run continues; another log stays as it is.

        The old log is kept as ``mllog-part<k>.txt``. The new one holds its lines without an aborted run's ``run_stop``
        and without later epochs, which are repeated: the clock has kept running, and there is one ``run_start``.
        """
        old = self._old
        if old is None or not self.enabled:
            return
        rewrite(self.path, old)
        if self.resumed:
            self.event("resumed", old.part, epoch_num=old.epoch, lines_dropped=old.dropped)

    def submission(self, config: RunConfig, application: Application) -> None:
        """Log who ran what, in which division; a resumed run without a name of its system keeps that of its log."""
        submission = config.submission
        self._point("submission_benchmark", application.benchmark)
        self._point("submission_org", submission.org)
        self._point("submission_division", submission.division)
        self._point("submission_status", submission.status)
        name = submission.platform or self._logged.get("submission_platform") or platform.node() or "unnamed"
        self._point("submission_platform", name)

    def cache_clear(self, value: str) -> None:
        """``value`` says what was actually done to the caches."""
        self._point("cache_clear", value)

    def init_start(self) -> None:
        """The model and the system are about to be set up; the dataset is not touched yet."""
        self._start("init_start")

    def init_stop(self) -> None:
        """Initialisation is over."""
        self._end("init_stop")

    def run_start(self) -> None:
        """The clock starts: from here on the dataset may be touched."""
        self._start("run_start")

    def staging_start(self) -> None:
        """Copying the dataset to node-local storage begins."""
        self._start("staging_start")

    def staging_stop(self, seconds: float) -> None:
        """Copying took ``seconds``."""
        self._end("staging_stop", staging_duration=seconds)

    def samples(self, train: int, evaluation: int) -> None:
        """Samples of the training set and of the validation set."""
        self._point("train_samples", train)
        self._point("eval_samples", evaluation)

    def geometry(self, global_batch_size: int, nodes: int, accelerators_per_node: int, ranks: int) -> None:
        """Log the size of the run; ``accelerators_per_node`` is 0 on CPUs."""
        self._point(BATCH, global_batch_size)
        self._point("number_of_nodes", nodes)
        self._point("accelerators_per_node", accelerators_per_node)
        self._point("number_of_ranks", ranks)

    def seed(self, value: int) -> None:
        """The seed that determines every random draw of the run."""
        self._point("seed", value)

    def quality_target(self, value: float) -> None:
        """The run's own target for its metric; it is the published target only in a closed run."""
        self._point("quality_target", value)

    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Log hyperparameters under their official keys."""
        for key, value in values.items():
            self.event(key, value)

    def epoch_start(self, epoch: int) -> None:
        """Epochs count from 1."""
        self._start("epoch_start", epoch_num=epoch)

    def epoch_stop(self, epoch: int) -> None:
        """The epoch's training, and its evaluation if it has one, are over."""
        self._end("epoch_stop", epoch_num=epoch)

    def eval_start(self, epoch: float) -> None:
        """Evaluation over the whole validation set begins; ``epoch`` is a fraction within an epoch."""
        self._start("eval_start", epoch_num=epoch)

    def eval_stop(self, epoch: float) -> None:
        """Evaluation is over."""
        self._end("eval_stop", epoch_num=epoch)

    def quality(self, key: Literal["eval_error", "eval_accuracy"], value: float, epoch: float) -> None:
        """The metric that the target is compared with."""
        self._log("POINT_IN_TIME", key, float(value), {"epoch_num": epoch})

    def event(self, key: str, value: Any, **metadata: Any) -> None:
        """Log anything else, such as ``learning_rate``, ``train_loss``, ``throughput`` or ``target_accuracy_reached``.

        Raises ``ValueError`` for a key that the official checkers would mistake for the batch size or the metric.
        """
        if key not in TRAPS and any(trap in key for trap in TRAPS):
            raise ValueError(
                f"key '{key}' contains one of {TRAPS}, which the official checkers match anywhere in a line"
            )
        self._point(key, value, **metadata)

    def run_stop(self, status: Status, reason: str = "", cause: Cause | None = None) -> None:
        """Stop the clock and close the log. Only the first call counts, from whichever thread.

        The official log knows ``success`` and ``aborted``: a target that was not reached is ``aborted``, and ``reason``
        says so. On a full disk the line uses the run folder's reserve; if even that fails, a run that is being aborted
        continues to end, so that an ``OSError`` does not hide the reason for the abort.
        """
        with self._lock:
            if self._stopped:
                return
            self.run_stop_ms = self._now_ms()
            official = "success" if status == "success" else "aborted"
            metadata = {"status": official, "reason": reason} | ({} if cause is None else {"cause": cause})
            try:
                self._log("INTERVAL_END", "run_stop", None, metadata, self.run_stop_ms)
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if full and release_reserve(self.path.parent):
                    self._handler.flush()
                elif status != "aborted":
                    raise
            finally:
                self._stopped = True
                self.close()

    def elapsed_s(self) -> float:
        """Return the seconds from ``run_start`` to now or ``run_stop``; 0 before it. Interruptions count."""
        if self.run_start_ms is None:
            return 0.0
        return ((self.run_stop_ms or self._now_ms()) - self.run_start_ms) / 1e3

    def close(self) -> None:
        """Close the file. Nothing is written afterwards."""
        with self._lock:
            self._stopped = True
            with contextlib.suppress(OSError):  # each line was flushed, or its error raised, when it was written
                self._handler.close()

    def _point(self, key: str, value: Any, **metadata: Any) -> None:
        logged = not metadata and self._logged.get(key, _NEVER) == _plain(value)
        if self.resumed and (key in BEFORE_THE_CLOCK or logged):
            return
        self._log("POINT_IN_TIME", key, value, metadata)

    def _start(self, key: str, **metadata: Any) -> None:
        if not (self.resumed and key in BEFORE_THE_CLOCK):
            self._log("INTERVAL_START", key, None, metadata)

    def _end(self, key: str, **metadata: Any) -> None:
        if not (self.resumed and key in BEFORE_THE_CLOCK):
            self._log("INTERVAL_END", key, None, metadata)

    def _log(self, kind: str, key: str, value: Any, metadata: dict[str, Any], time_ms: int | None = None) -> None:
        with self._lock:
            if self._stopped:
                return
            now = self._now_ms() if time_ms is None else time_ms
            if key == "run_start":
                self.run_start_ms = now
            if not self.enabled:
                return
            value = _plain(value)
            metadata = _plain(metadata)
            json.dumps([value, metadata])  # raises where MLLogger would write a line that no parser reads
            write = {
                "INTERVAL_START": self._writer.start,
                "INTERVAL_END": self._writer.end,
                "POINT_IN_TIME": self._writer.event,
            }[kind]
            with cheap_frame_lookups():  # MLLogger looks up its caller, too
                write(key=key, value=value, metadata={**_caller(), **metadata}, time_ms=now)
            self._handler.raise_error()

    def _now_ms(self) -> int:
        # The system's clock may be set back; the times of a log never go back.
        self._last_ms = max(self._last_ms, int(time.time() * 1e3))
        return self._last_ms


def _writer(handler: logging.FileHandler) -> MLLogger:
    # A logger of our own, outside logging's registry: nothing leaks from one run of a process into the next.
    logger = logging.Logger("hpcbench.mllog", logging.INFO)
    logger.addHandler(handler)
    # MLLogger warns if file and lineno are given. They are given, since its own would name absolute paths.
    logger.addFilter(lambda record: record.levelno == logging.INFO)
    return MLLogger(logger=logger)


class _StrictFileHandler(logging.FileHandler):
    """Keeps the error of a failed write, which logging would print and MLLogger would ignore."""

    error: BaseException | None = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        self.error = sys.exception()

    def raise_error(self) -> None:
        """Raise the error of the last write, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error


_NEVER = object()


def _caller() -> dict[str, Any]:
    """File and line that called into this module; the file is given by its module's name, not by a machine's path."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "unknown"))
    return {"file": module.replace(".", "/") + ".py", "lineno": frame.f_lineno}


def _plain(value: Any) -> Any:
    """Return ``value`` with its text changed so that no checker can mistake it for another line or key."""
    if isinstance(value, str):
        for trap in TRAPS:
            value = value.replace(trap, trap.replace("_", " "))
        return value.replace(":::MLLOG", "MLLOG")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
