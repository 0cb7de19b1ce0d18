"""Official logs for tests, and how the official package reads them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mlperf_logging.compliance_checker import mlp_parser

from hpcbench.measure import mllog
from hpcbench.measure.mllog import RunLog


def parsed(path: Path):
    """Log lines as the official package reads them."""
    lines, errors = mlp_parser.parse_file(str(path), ruleset="3.0.0")
    assert errors == []
    return lines


def keys(path: Path) -> list[str]:
    return [line.key for line in parsed(path)]


def started(path: Path) -> RunLog:
    log = RunLog(path)
    log.cache_clear("nothing was cleared")
    log.init_start()
    log.init_stop()
    log.run_start()
    return log


def resumed_log(path: Path, **options: Any) -> RunLog:
    log = RunLog.resume(path, **options)
    log.rewrite()
    return log


def set_clock(monkeypatch, *times: float) -> None:
    """Let the log read ``times`` one after the other, then the last for ever."""
    left = list(times)
    clock = SimpleNamespace(time=lambda: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(mllog, "time", clock)


def epoch(log: RunLog, number: int, value: float = 0.5) -> None:
    log.epoch_start(number)
    log.eval_start(number)
    log.eval_stop(number)
    log.quality("eval_error", value, number)
    log.epoch_stop(number)
