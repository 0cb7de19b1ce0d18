"""Run measurements in processes of their own, within a time budget, and record each as it proceeds.

A process serves the measurements of one group, one after the other. If it dies, runs out of time or breaks the
device's context, its measurement is recorded as failed, and the next one of the group starts a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from _accelerator.plan import Planned

Entry = dict[str, Any]


class Worker:
    """A process for one group: it receives each measurement as a line of JSON, and answers in lines of JSON."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        self.answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, planned: Planned, limit_s: float, on_part: Callable[[Any], None]) -> Entry:
        """Request one measurement; return its ``status`` (measured, skipped or failed) and its details."""
        assert self.process.stdin is not None
        try:
            print(json.dumps({"kind": planned.kind, "settings": planned.settings}), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return {"status": "failed", "reason": self.ending(), "fatal": True}
        end = time.monotonic() + limit_s
        while True:
            try:
                line = self.answers.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.kill()
                return {"status": "failed", "reason": f"ended after {limit_s:.0f} s, its limit", "fatal": True}
            if line is None:
                return {"status": "failed", "reason": self.ending(), "fatal": True}
            answer: Entry = json.loads(line)
            if "part" not in answer:
                return answer
            on_part(answer["part"])

    def ending(self) -> str:
        """Wait for the process and say how it ended."""
        code = self.process.wait()
        return f"its process ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"

    def kill(self) -> None:
        """Kill the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Record:
    """A result file, rewritten after every event."""

    def __init__(self, path: Path, head: Entry) -> None:
        self.path, self.head = path, head
        self.entries: list[Entry] = []
        self.lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write()

    def begin(self, planned: Planned) -> Entry:
        """Add an entry for a measurement that starts now."""
        entry = {key: value for key, value in asdict(planned).items() if key in ("name", "settings", "goal") and value}
        entry["status"] = "running"
        with self.lock:
            self.entries.append(entry)
        self.write()
        return entry

    def update(self, entry: Entry, changes: Entry) -> None:
        """Add to an entry what has become known."""
        with self.lock:
            entry.update(changes)
        self.write()

    def write(self) -> None:
        """Replace the file."""
        with self.lock:
            text = json.dumps({**self.head, "measurements": self.entries}, indent=1)
            partial = self.path.with_suffix(".partial")
            partial.write_text(text + "\n", encoding="utf-8")
            partial.replace(self.path)


class Runner:
    """Makes the planned measurements until ``deadline`` (of ``time.monotonic``), with the lanes side by side."""

    def __init__(
        self, record: Record, command: Callable[[str], list[str]], environment: Mapping[str, str], deadline: float
    ) -> None:
        self.record, self.command, self.environment, self.deadline = record, command, environment, deadline
        self.roofs: dict[str, Any] = {}
        """Measured roofs of the device, by group: later measurements have them in their settings."""

    def run(self, plan: Sequence[Planned]) -> None:
        """Make the measurements; return when all lanes are done."""
        lanes = sorted({planned.lane for planned in plan})
        threads = [
            threading.Thread(target=self.run_lane, args=([one for one in plan if one.lane == lane],)) for lane in lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_lane(self, plan: Sequence[Planned]) -> None:
        """Make one measurement after the other, in processes that stay as long as their group has more to come."""
        workers: dict[str, Worker] = {}
        try:
            for number, planned in enumerate(plan):
                self.measure(planned, workers)
                if planned.group in workers and planned.group not in {later.group for later in plan[number + 1 :]}:
                    workers.pop(planned.group).kill()
        finally:
            for worker in workers.values():
                worker.kill()

    def measure(self, planned: Planned, workers: dict[str, Worker]) -> None:
        """Make one measurement, or record why not."""
        entry, left = self.record.begin(planned), self.deadline - time.monotonic()
        if left < planned.needs_s:
            reason = f"about {planned.needs_s:.0f} s needed, {max(left, 0):.0f} s left"
            self.record.update(entry, {"status": "skipped", "reason": reason})
            return
        if planned.group not in workers:
            workers[planned.group] = Worker(self.command(planned.group), self.environment)
        started = time.monotonic()

        def on_part(part: Any) -> None:
            self.record.update(entry, {"parts": [*entry.get("parts", []), part]})

        known = {"roofs": self.roofs[planned.group]} if planned.group in self.roofs else {}
        asked = replace(planned, settings={**planned.settings, **known})
        answer = workers[planned.group].ask(asked, min(planned.limit_s, left), on_part)
        if planned.kind == "roofs" and answer["status"] == "measured":
            self.roofs[planned.group] = answer["result"]
        if answer.pop("fatal", False):
            workers.pop(planned.group).kill()
        if "machine" in answer:
            self.record.head["machine"] |= answer.pop("machine")
        self.record.update(entry, answer | {"took_s": round(time.monotonic() - started, 2)})
        print(f"{planned.name}: {summary(entry)}", file=sys.stderr, flush=True)


def summary(entry: Entry) -> str:
    """Summarise an entry in a line."""
    if entry["status"] != "measured":
        return f"{entry['status']}: {str(entry.get('reason', '')).strip().splitlines()[-1:]}"
    numbers = {key: value for key, value in entry.get("result", {}).items() if isinstance(value, int | float | str)}
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers.items()
    )
