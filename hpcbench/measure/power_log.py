"""The power log of a node, for a submission: its mean power over each second, from its energy counters.

Format: lines ``power_measurement_start``, ``power_reading`` (W), ``power_measurement_stop`` of an official log, in
``power/node_<j>.txt`` (MLPerf training policies, power measurement). A reading covers the time since the previous one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from hpcbench.measure.energy import Absent, EnergyMeter

POWER = "power"
"""The folder within a run folder that holds its power logs."""
START, READING, STOP = "power_measurement_start", "power_reading", "power_measurement_stop"
SOURCE, COVERS = "source", "covers"
"""Metadata of the first line: which counters were read, and the parts of a node that they count."""
FLUSH_S = 10.0
"""Seconds between flushes: a shared file system is written to no more often, and a run that dies leaves a log up to
the last flush."""


def set_power_aside(run_folder: Path) -> None:
    """Rename the power logs of an earlier attempt to ``power-part<k>``: a run's power log covers one attempt."""
    if (run_folder / POWER).is_dir():
        number = next(k for k in itertools.count(1) if not (run_folder / f"{POWER}-part{k}").exists())
        (run_folder / POWER).rename(run_folder / f"{POWER}-part{number}")


class PowerLog:
    """Writes the power of a node to ``path`` while its ``meter`` counts; one rank does it for the node.

    Nothing is written if the energy is not known from the start. A reading that fails is left out, and the next one
    covers the whole time. If the energy is not known at the end, or the file cannot be written, the log has no
    ``power_measurement_stop``; ``trouble`` says why.
    """

    def __init__(
        self, meter: EnergyMeter, path: Path, interval_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self.trouble = ""
        self._meter, self._interval_s, self._clock = meter, interval_s, clock
        self._file: TextIO | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="power", daemon=True)

    def start(self) -> None:
        """Begin the log; the meter must just have started."""
        energy = self._meter.read()
        if isinstance(energy, Absent):
            self.trouble = energy.reason
            return
        self._started, self._started_ms = self._clock(), int(time.time() * 1e3)
        self._read_at = self._flushed_at = self._started
        self._joules = energy.joules
        try:
            self.path.parent.mkdir(exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            self.trouble = f"{error.filename} cannot be written ({error.strerror})"
            return
        self._write("INTERVAL_START", START, None, {SOURCE: energy.source, COVERS: energy.covers})
        self._thread.start()

    def stop(self) -> None:
        """Write the power since the last reading, and end the log; call it while the meter still counts."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._file is None:
            return
        self.sample()
        if not self.trouble:
            self._write("INTERVAL_END", STOP, None, {})
        with contextlib.suppress(OSError):
            self._file.close()
        self._file = None

    def sample(self) -> None:
        """Write the mean power since the last reading, as the thread does."""
        energy, now = self._meter.read(), self._clock()
        if isinstance(energy, Absent):
            self.trouble = energy.reason
            return
        self.trouble = ""
        if self._at_ms(now) == self._at_ms(self._read_at):  # a reading that covers no time
            return
        watts = (energy.joules - self._joules) / (now - self._read_at)
        self._read_at, self._joules = now, energy.joules
        self._write("POINT_IN_TIME", READING, round(watts, 3), {})

    def _at_ms(self, now: float) -> int:
        """Milliseconds since 1970, by a clock that is never adjusted."""
        return self._started_ms + int((now - self._started) * 1e3)

    def _write(self, kind: str, key: str, value: float | None, metadata: dict[str, Any]) -> None:
        if self._file is None:
            return
        entry = {"namespace": "", "time_ms": self._at_ms(self._read_at), "event_type": kind, "key": key, "value": value,
                 "metadata": metadata}  # fmt: skip
        try:
            self._file.write(f":::MLLOG {json.dumps(entry)}\n")
            if self._read_at - self._flushed_at >= FLUSH_S or key != READING:
                self._file.flush()
                self._flushed_at = self._read_at
        except OSError as error:
            self.trouble = f"{self.path} cannot be written ({error.strerror})"
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s) and self._file is not None:
            self.sample()
