"""The score that ``mlperf_logging``'s ``result_summarizer`` gives to a folder of runs as it is.

The arithmetic is that of its functions ``_compute_strong_score_standalone`` and ``_compute_weak_score_standalone``,
applied to what ``official_log`` reads; nothing is written, and no ``scaling.json`` is deleted. Source: mlperf_logging
4.1.68.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.official_checker import quiet_logging
from hpcbench.mlperf.official_log import OfficialLog, words_of
from hpcbench.results.units import counted as number_of

LOGS = "result_*.txt"
"""Files that the official tools treat as logs; their names need no number."""
SCALING = "scaling.json"
DESCRIBED = (
    "division", "status", "submitter", "system_name", "host_processor_model_name", "number_of_nodes",
    "host_processor_core_count", "host_processors_per_node", "accelerator_model_name", "accelerators_per_node",
    "framework", "hw_notes", "sw_notes",
)  # fmt: skip
"""Keys that the summarizer takes from a system description; it crashes if one is missing."""


@dataclass(frozen=True)
class OfficialScore:
    """What the summarizer says about a folder."""

    minutes: float | None = None
    """Time to train, or for throughput the time of all instances; ``None`` if it gives no score."""
    instances: int | None = None
    """For throughput: the instances that count."""
    scale: int | None = None
    """For throughput: accelerators per instance."""
    factor: float = 1.0
    """The factor in ``scaling.json``, by which a time to train is multiplied."""
    crash: str | None = None
    """The exception that ends the whole command; no folder of the organization then has a score."""
    why: str | None = None
    """Why there is no score."""


def log_files(folder: Path) -> list[Path]:
    """List the logs of a folder, in the order in which the official tools find them: that of the filesystem."""
    return [Path(name) for name in glob.glob(f"{glob.escape(str(folder))}/{LOGS}")]  # noqa: PTH207 (its order)


def official_score(folder: Path, logs: Sequence[OfficialLog], throughput: bool, ruleset: str) -> OfficialScore:
    """Score ``folder``, whose files are ``logs``, in the order of ``log_files``."""
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    benchmark = folder.name
    skipped = description_problem(folder)
    if skipped is not None:
        return skipped
    crash = next((log.crash for log in logs if log.crash is not None), None)
    if crash is not None:
        return OfficialScore(crash=crash)
    if throughput and benchmark not in RUNS:
        return OfficialScore(crash=f"KeyError: '{benchmark}'")
    if (folder / "power").is_dir() and any(log.accepted for log in logs):
        score = with_power(folder, throughput, ruleset)
    else:
        score = throughput_score(benchmark, logs) if throughput else time_score(folder, logs)
    known = benchmark in get_allowed_benchmarks("hpc", ruleset)
    if not known and score.crash is None and not (throughput and score.minutes is None):
        return OfficialScore(crash=f"AssertionError: ruleset {ruleset} has no benchmark {benchmark}")
    return score


def description_problem(folder: Path) -> OfficialScore | None:
    """Return the result if the summarizer skips a system for lack of a description, or crashes on its content."""
    system = folder.parent.parent
    path = system.parent.parent / "systems" / f"{system.name}.json"
    if not path.is_file():
        return OfficialScore(why=f"the summarizer passes the system over: no systems/{path.name}")
    try:
        with path.open() as file:
            described = json.load(file)
        missing = [key for key in DESCRIBED if key not in described]
        if missing:
            return OfficialScore(crash=f"systems/{path.name} has no {missing[0]}")
        nodes = int(described["number_of_nodes"])
        _ = nodes * int(described["host_processors_per_node"]), nodes * int(described["accelerators_per_node"])
        _ = ";".join(described[key] for key in ("hw_notes", "sw_notes") if described[key]), described["framework"] + ""
    except Exception as error:
        return OfficialScore(crash=f"systems/{path.name}: {words_of(error)}")
    return None


def time_score(folder: Path, logs: Sequence[OfficialLog]) -> OfficialScore:
    """The mean without the fastest and the slowest, times the scaling; one rejected log may be the slowest."""
    try:
        factor = scaling_of(folder)
    except Exception as error:
        return OfficialScore(crash=f"{SCALING}: {words_of(error)}")
    minutes = sorted((log.stop_ms - log.start_ms) / 60 / 1000 for log in logs
                     if log.accepted and log.start_ms is not None and log.stop_ms is not None)  # fmt: skip
    dropped = len(logs) - len(minutes)
    if dropped > 1:
        return OfficialScore(why=f"{dropped} logs are not accepted; one may")
    counted = minutes[1 : len(minutes) - (1 - dropped)]
    if not counted:
        return OfficialScore(why=f"{number_of(len(logs), 'log is', 'logs are')} too few")
    return OfficialScore(sum(counted) / len(counted) * factor, factor=factor)


def scaling_of(folder: Path) -> float:
    """The factor in ``scaling.json``; 1 without that file. Raises where the summarizer does."""
    path = folder / SCALING
    if not path.is_file():
        return 1.0
    factor = json.loads(path.read_text())["scaling_factor"]
    if not isinstance(factor, int | float):
        raise TypeError(f"scaling_factor {factor!r} is no number")
    return float(factor)


def throughput_score(benchmark: str, logs: Sequence[OfficialLog]) -> OfficialScore:
    """The time from the first start to the last stop of all accepted logs."""
    start, stop, count = float("inf"), float("-inf"), 0
    scale: int | None = None
    for log in logs:
        if not log.accepted or log.start_ms is None or log.stop_ms is None:
            continue
        start, stop, count = min(start, log.start_ms), max(stop, log.stop_ms), count + 1
        if log.scale_crash is not None:
            return OfficialScore(crash=log.scale_crash)
        if log.scale_problem is not None:
            continue
        if scale is not None and scale != log.scale:
            return OfficialScore(crash=f"AssertionError: instances of {scale} and of {log.scale} accelerators")
        scale = log.scale
    if count < RUNS[benchmark]:
        return OfficialScore(why=f"{count} accepted logs, fewer than {RUNS[benchmark]}")
    return OfficialScore((stop - start) / 60 / 1000, count, scale)


def with_power(folder: Path, throughput: bool, ruleset: str) -> OfficialScore:
    """Run the official functions themselves, which also read the power logs, and crash if one is missing."""
    from mlperf_logging.result_summarizer import result_summarizer as official

    function = official._compute_weak_score_standalone if throughput else official._compute_strong_score_standalone
    try:
        with contextlib.redirect_stdout(io.StringIO()), quiet_logging():
            returned = function(folder.name, folder.parent.parent.name, True, str(folder), "hpc", ruleset)
    except Exception as error:
        return OfficialScore(crash=words_of(error))
    if not throughput:
        return OfficialScore(
            returned[0], factor=float(returned[2]), why=None if returned[0] is not None else "no score"
        )
    scores = {key.partition(":")[2]: value for key, value in returned[0].items()}
    if not scores:
        return OfficialScore(why="too few accepted logs")
    return OfficialScore(scores["time_to_train_all"], scores["number_of_models"], scores["instance_scale"])
