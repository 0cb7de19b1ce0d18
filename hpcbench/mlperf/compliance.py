"""Check official logs with ``mlperf_logging``'s own checker, whose verdict counts, and for faults that it lets pass."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcbench.measure.log_rules import check_rules, own_target_reached
from hpcbench.mlperf.official_checker import keys_of_rules, messages_of
from hpcbench.mlperf.official_log import QUALITY, parse, words_of
from hpcbench.mlperf.rulesets import check_ruleset
from hpcbench.results.mllog_reader import MARK, Event, parse_events, read_events
from staging.errors import InputError
from staging.formats.regular import read_text

DIVISIONS = ("open", "closed")

Official = Literal["pass", "own target", "common rules", "fail"]


@dataclass
class CheckResult:
    """What the checks of one log found."""

    path: Path
    benchmark: str
    division: str
    ruleset: str
    official: Official
    """``pass``: the official checker accepts the log. ``own target``: it accepts all but the published quality, and the
    run, in the open division, reached the target that its log names. ``common rules``: the official checker does not
    know the benchmark, so only the rules common to all benchmarks were applied (open division)."""
    official_messages: list[str] = field(default_factory=list)
    beyond_messages: list[str] = field(default_factory=list)
    """Violations of rules that the official checker does not check. Not part of the verdict."""
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the official checker accepts the log, or the part of it that it has rules for."""
        return self.official in ("pass", "common rules")

    @property
    def messages(self) -> list[str]:
        """All messages, each of which says which check found it."""
        official = [] if self.official == "own target" else self.official_messages
        return [f"official checker: {m}" for m in official] + [
            f"beyond the official checker: {m}" for m in self.beyond_messages
        ]


def check_log(path: str | Path, division: str | None = None, ruleset: str = "3.0.0") -> CheckResult:
    """Check the log at ``path`` in ``division`` (default: the division that it names) under ``ruleset``.

    Raises ``InputError`` for an unknown ruleset or division, and ``DataError`` for a file that cannot be read.
    """
    check_ruleset(ruleset)
    if division not in (None, *DIVISIONS):
        raise InputError(f"division '{division}' is neither open nor closed")
    path = Path(path)
    events, problems = read_events(path)
    result = CheckResult(
        path=path,
        benchmark=str(_first(events, "submission_benchmark", "")),
        division=division or str(_first(events, "submission_division", "")),
        ruleset=ruleset,
        official="fail",
    )
    if not events:
        result.official_messages = problems or ["holds no :::MLLOG line"]
        return result
    _official(result, events, path)
    if problems and result.official_messages:
        result.official_messages = problems
    result.beyond_messages, result.notes = check_rules(events, result.benchmark, result.division, ruleset)
    return result


def _official(result: CheckResult, events: list[Event], path: Path) -> None:
    """Run the official checker, unless it would only crash, and interpret its messages."""
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    if result.division not in DIVISIONS:
        result.official_messages = [f"submission_division is '{result.division}', not open or closed"]
        return
    known = result.benchmark in get_allowed_benchmarks("hpc", result.ruleset)
    if not known and result.division == "closed":
        result.official_messages = [
            f"submission_benchmark '{result.benchmark}' has no closed division in ruleset {result.ruleset}"
        ]
        return
    # These names become part of a file name in the official checker.
    if not re.fullmatch(r"\w+", str(_first(events, "scheduler_type", "none"))):
        result.official_messages = ["scheduler_type is not a plain name"]
        return
    with _as_division(path, result.division) as copy:
        result.official_messages = run_official(copy, result.ruleset, common_only=not known)
    if not result.official_messages:
        result.official = "pass" if known else "common rules"
    elif (
        result.division == "open"
        and all(QUALITY.match(m) for m in result.official_messages)
        and own_target_reached(events)
    ):
        result.official = "own target"


def run_official(path: Path, ruleset: str, common_only: bool = False) -> list[str]:
    """Return the messages of ``mlperf_logging.compliance_checker --usage hpc``, one line each; empty if it passes.

    Its crashes become messages. It leaves no file and no logging handler behind.
    """
    text = read_text(path, encoding="latin-1")
    lines, broken, crash = parse(text, keys_of_rules(ruleset))
    messages: list[str] = []
    if crash is None:
        try:
            messages = messages_of(lines, broken, ruleset, common_only)
        except Exception as error:
            crash = words_of(error)
    if crash is not None:
        messages.append(f"the checker itself failed on this log ({crash})")
    numbers = [number for number, line in enumerate(text.split("\n"), 1) if MARK in line]
    return [_one_line(m, numbers) for m in messages]


def _one_line(message: str, numbers: list[int]) -> str:
    """Shorten a message of the official checker to one line; ``numbers`` are the line numbers of the log's events."""
    where = re.match(r"CHECK for '(?P<key>.*?)' failed in line (?P<line>\d+):", message)
    test = re.search(r"^failed test: (.*)$", message, re.MULTILINE)
    if where and test:
        count = int(where["line"])
        line = numbers[count] if count < len(numbers) else count + 1
        return f"'{where['key']}' in line {line} fails the test {test[1].strip()}"
    return " ".join(message.split())[:300]


@contextmanager
def _as_division(path: Path, division: str) -> Iterator[Path]:
    """Yield the log itself, or a copy that names ``division`` if the log names another division."""
    lines = read_text(path, encoding="latin-1").split("\n")
    events, _ = parse_events(lines)
    named = [event for event in events if event.key == "submission_division" and event.value != division]
    if not named:
        yield path
        return
    for event in named:
        entry = {"time_ms": event.time_ms, "key": event.key, "value": division, "metadata": event.metadata}
        lines[event.line - 1] = MARK + json.dumps(entry)
    with tempfile.TemporaryDirectory(prefix="hpcbench-check-") as folder:
        copy = Path(folder) / path.name
        copy.write_text("\n".join(lines), encoding="latin-1")
        yield copy


def _first(events: list[Event], key: str, default: Any) -> Any:
    return next((event.value for event in events if event.key == key), default)
