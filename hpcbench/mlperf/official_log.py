"""What the official tools derive from one log: their verdict, and its times, size, epochs and seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.mlperf.official_checker import keys_of_rules, messages_of
from hpcbench.results.mllog_reader import MARK
from staging.errors import DataError
from staging.formats.regular import read_text
from staging.one_line import one_line

QUALITY = re.compile(r"Failed checks for (eval_error|eval_accuracy) :")
"""The official checker's message for a published target that was not reached."""
KEY = '"key": "'
TEXT = r'"[^"\\\x00-\x1f]*"'
VALUE = rf"(?:-?(?:0|[1-9]\d{{0,300}})(?:\.\d+)?(?:[eE][-+]?\d+)?|{TEXT}|null|true|false)"
FLAT = rf"\{{(?:{TEXT}: {VALUE}(?:, (?=\")|(?=\}})))*\}}"
PLAIN = re.compile(
    rf'\{{"namespace": {TEXT}, "time_ms": \d{{1,15}}, "event_type": {TEXT}, "key": "([^"\\\x00-\x1f]*)", '
    rf'"value": (?:{VALUE}|{FLAT}), "metadata": {FLAT}\}}',
    re.ASCII,
)
"""Matches a line that is certainly valid, and its key: from most lines the official tools take no more than that."""
OF_CONVERGENCE = ("global_batch_size", "submission_benchmark", "eval_error", "eval_accuracy", "run_stop")
"""The convergence test looks for these anywhere in a line, not only in its key."""


@dataclass(frozen=True)
class Convergence:
    """What the convergence test takes from a log."""

    epochs: float
    """1e9 if the run did not converge."""
    converged: bool
    batch: Any
    """-1 if there is none."""
    benchmark: Any


@dataclass(frozen=True)
class OfficialLog:
    """A log as the official tools see it. A crash is an exception that they raise and do not catch."""

    name: str
    accepted: bool
    """The verdict of the compliance checker."""
    crash: str | None
    """If the compliance checker crashes: the exception, in words."""
    start_ms: float | None = None
    stop_ms: float | None = None
    scale: int | None = None
    """Nodes x accelerators of the instance."""
    scale_problem: str | None = None
    scale_crash: str | None = None
    convergence: Convergence | None = None
    convergence_crash: str | None = None
    seeds: tuple[tuple[Any, Any, int], ...] = ()
    """File, line and value of each seed."""
    seeds_problem: str | None = None
    division: Any = None
    """The first ``submission_division``."""
    rejection: str | None = None
    """Why the compliance checker rejects it: its first message, if there is one on more than the published quality."""


def read_official_log(path: Path, ruleset: str) -> OfficialLog:
    """Read the log at ``path`` under ``ruleset``. A file that cannot be read counts as a crash."""
    try:
        text = read_text(path, encoding="latin-1")
    except (OSError, DataError) as error:
        crash = words_of(error)
        return OfficialLog(path.name, False, crash, convergence_crash=crash, seeds_problem=crash)
    return official_log(path.name, text, ruleset)


def official_log(name: str, text: str, ruleset: str) -> OfficialLog:
    """Like ``read_official_log``, from the file's content ``text``."""
    lines, broken, crash = parse(text, keys_of_rules(ruleset) | {"seed"})
    accepted, messages = False, list[str]()
    if crash is None:
        try:
            messages = messages_of(lines, broken, ruleset)
            accepted = not messages
        except Exception as error:  # whatever its rules raise ends the official command
            crash = words_of(error)
    converged, stopped = convergence_of(lines, broken)
    start, stop = times_of(lines)
    scale, lacks, scale_crash = scale_of(lines)
    seeds, problem = seeds_of(lines, broken, crash)
    return OfficialLog(
        name, accepted, crash, start, stop, scale, lacks, scale_crash, converged, stopped, seeds, problem,
        next((line.value["value"] for line in lines if line.key == "submission_division"), None),
        next((one_line(message, 200) for message in messages if not QUALITY.match(message)), None),
    )  # fmt: skip


def words_of(error: BaseException) -> str:
    """Describe an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def parse(text: str, keys: frozenset[str]) -> tuple[list[Any], list[str], str | None]:
    """Return the lines as the official parser makes them, those that it rejects, and the exception that ends it.

    Valid lines from which no official tool takes anything are left out.
    """
    from mlperf_logging.compliance_checker.mlp_parser.ruleset_300 import LogLine, string_to_logline

    decoder: Any = json.JSONDecoder()
    scan = decoder.scan_once
    lines: list[Any] = []
    broken: list[str] = []
    for number, line in enumerate(line for line in text.split("\n") if MARK in line):
        payload = line.rpartition(MARK)[2].rstrip()
        if is_passed_over(payload, keys):
            continue
        try:
            entry, end = scan(payload, 0)
            if end == len(payload):
                value = {"value": entry["value"], "metadata": entry["metadata"]}
                lines.append(LogLine(MARK + payload, float(entry["time_ms"]), entry["key"], value, number))
                continue
        except Exception:  # noqa: S110 (the official parser says what is wrong)
            pass
        try:
            lines.append(string_to_logline(number, (MARK + payload).strip()))
        except ValueError as error:
            broken.append(f"{payload} ({error})")
        except Exception as error:
            return lines, broken, words_of(error)
    return lines, broken, None


def is_passed_over(payload: str, keys: frozenset[str]) -> bool:
    """Whether a line is valid and no official tool takes anything from it."""
    begin = payload.find(KEY) + len(KEY)
    if payload[begin : payload.find('"', begin)] in keys:
        return False
    for word in OF_CONVERGENCE:  # a loop, since any() would make a generator for each line
        if word in payload:
            return False
    plain = PLAIN.fullmatch(payload)
    return plain is not None and plain[1] not in keys


def times_of(lines: Sequence[Any]) -> tuple[float | None, float | None]:
    """Times of ``run_start`` and ``run_stop``: the last of each up to the first line at which both are known."""
    start: float | None = None
    stop: float | None = None
    for line in lines:
        start = line.timestamp if line.key == "run_start" else start
        stop = line.timestamp if line.key == "run_stop" else stop
        if start is not None and stop is not None:
            break
    return start, stop


def scale_of(lines: Sequence[Any]) -> tuple[int | None, str | None, str | None]:
    """Accelerators of the instance (nodes if it has none), which value is missing for it, and a crash."""
    nodes = per_node = None
    for line in lines:
        nodes = line.value["value"] if line.key == "number_of_nodes" else nodes
        per_node = line.value["value"] if line.key == "accelerators_per_node" else per_node
        if nodes is not None and per_node is not None:
            break
    if nodes is None or per_node is None:
        return None, f"{'number_of_nodes' if nodes is None else 'accelerators_per_node'} not recorded", None
    try:
        return int(nodes) * max(int(per_node), 1), None, None
    except ValueError as error:
        return None, words_of(error), None
    except Exception as error:
        return None, None, words_of(error)


def seeds_of(
    lines: Sequence[Any], broken: Sequence[str], crash: str | None
) -> tuple[tuple[tuple[Any, Any, int], ...], str | None]:
    """Seeds of a log with where they were logged, and why the seed checker rejects it."""
    if crash is not None or broken:
        return (), crash or "lines that cannot be parsed"
    try:
        seeds = [line.value for line in lines if line.key == "seed"]
        return tuple((seed["metadata"]["file"], seed["metadata"]["lineno"], int(seed["value"])) for seed in seeds), None
    except Exception as error:
        return (), words_of(error)


def convergence_of(lines: Sequence[Any], broken: Sequence[str]) -> tuple[Convergence | None, str | None]:
    """The last epoch evaluated before a ``run_stop`` with success, the batch and the benchmark; or the crash."""
    epochs, converged, batch, benchmark = 1e9, False, -1, None
    spoilt = [line for line in broken if any(word in line for word in OF_CONVERGENCE)]
    if spoilt:
        return None, f"a line cannot be parsed: {spoilt[0][:100]}"
    try:
        for line in lines:
            payload = line.full_string
            if "global_batch_size" in payload:
                batch = line.value["value"]
            if "submission_benchmark" in payload:
                benchmark = line.value["value"]
            if "eval_error" in payload or "eval_accuracy" in payload:
                last = round(line.value["metadata"]["epoch_num"], 3)
            if "run_stop" in payload and line.key == "run_stop":
                converged = line.value["metadata"]["status"] == "success"
                epochs = last if converged else 1e9
    except Exception as error:
        return None, words_of(error)
    return Convergence(epochs, converged, batch, benchmark), None
