"""How long tests may take of their own: a default test ``DEFAULT_S``, others as ``LIMITS_S`` says.

What a test takes is the larger of the processor time of its processes and its time on the clock, which is divided by
the number of processes that wanted each core, for these share it. ``--limits`` fails a run with a test above its limit.
One that hangs is ended by pytest-timeout, where that is installed.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

CPU_FLAGS = Path("/proc/cpuinfo")
PACE = 1.0 if CPU_FLAGS.exists() and "avx512f" in CPU_FLAGS.read_text(encoding="utf-8") else 1.5
"""How much longer training takes on a processor without AVX-512."""
DEFAULT_S = 60.0 * PACE
LIMITS_S = {"long": math.inf, "slow": 120.0 * PACE}
OWN = "own_s"
MARKED = "limit_s"
MEASURED = "measured"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--limits`` and ``--long``."""
    parser.addoption("--long", action="store_true", help="run campaigns at full length, too; with -m slow or -m ''")
    parser.addoption("--limits", action="store_true", help="fail where a test takes longer than a test may")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that are ``long`` without ``--long``; with it, they have no time limit."""
    if config.getoption("--long") and config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.timeout(0))
    if not config.getoption("--long"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def processor_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def own_s(clock_s: float, cpu_s: float, load: float, cores: int) -> float:
    """What a test takes of its own; ``load`` is the mean number of processes that ran or wanted to."""
    return max(cpu_s, clock_s / max(1.0, load / cores))


class Limits:
    """Measures each test where it runs, and tells of those over their limit in the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.strict = bool(config.getoption("--limits"))
        self.over: list[str] = []
        self._began = (0.0, 0.0)
        self._own_s = 0.0
        self._measured = ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Note when a test begins."""
        self._began = (time.monotonic(), processor_s())
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Take the time; what follows the last test is the end of what all tests share."""
        clock, cpu = time.monotonic() - self._began[0], processor_s() - self._began[1]
        load = os.getloadavg()[0]
        self._own_s = own_s(clock, cpu, load, os.cpu_count() or 1)
        self._measured = f"{clock:.0f} s on the clock, {cpu:.0f} s of processor time, load {load:.1f}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the last report of a test what it took."""
        report = yield
        if call.when == "teardown":
            limit = next((LIMITS_S[mark] for mark in LIMITS_S if item.get_closest_marker(mark)), DEFAULT_S)
            report.user_properties += [(OWN, self._own_s), (MARKED, limit), (MEASURED, self._measured)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a test over its limit."""
        found: dict[str, Any] = dict(report.user_properties)
        if report.when == "teardown" and found.get(OWN, 0.0) > found.get(MARKED, 0.0):
            took = f"took {found[OWN]:.0f} s of its own ({found[MEASURED]})"
            self.over.append(f"{report.nodeid} {took}, and may take {found[MARKED]:.0f} s")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the tests over their limit."""
        if self.over:
            terminalreporter.section("tests over their limit")
            for line in self.over:
                terminalreporter.line(line)
            terminalreporter.line("make it shorter, or mark it slow (tests/limits.py)")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """With ``--limits`` they fail the run."""
        if self.strict and self.over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Measure in every process that runs tests; the first one of the run tells."""
    config.pluginmanager.register(Limits(config), "limits")
