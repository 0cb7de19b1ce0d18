"""Run a file of ``tests/gpu`` with pytest in this process, and report every test as it ends."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import pytest

from _accelerator.answers import Say
from _accelerator.plan import ROOT

OPTIONS = ("-o", "addopts=", "--strict-markers", "--import-mode=importlib", "-p", "no:cacheprovider", "-q")
"""Replaces the options in pyproject.toml, which ask for plugins that may be missing here."""
ON_PROCESSOR = "HPCBENCH_GPU_TESTS_ON_PROCESSOR"
"""If this environment variable is set, tests/gpu runs on the processor if there is no accelerator."""


class Reporter:
    """A pytest plugin that reports the outcome of each test."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins; if nothing follows, it ended the process."""
        self.begun = time.monotonic()
        self.say({"test": nodeid.rpartition("/")[2], "outcome": "running"})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test ended: its call, or a setup that failed or skipped it."""
        if report.when != "call" and report.passed:
            return
        self.outcomes[report.outcome] += 1
        said: dict[str, Any] = {"test": report.nodeid.rpartition("/")[2], "outcome": report.outcome}
        said["took_s"] = round(time.monotonic() - self.begun, 2)
        if report.failed:
            said["reason"] = report.longreprtext[-3000:]
        elif report.skipped and isinstance(report.longrepr, tuple):
            said["reason"] = report.longrepr[2]
        self.say(said)


def run_file(settings: dict[str, Any], smoke: bool, say: Say) -> dict[str, Any]:
    """Run the tests of ``settings["file"]``. Raises ``AssertionError`` if one fails or none is found."""
    os.chdir(ROOT)
    if smoke:
        os.environ[ON_PROCESSOR] = "1"
    reporter = Reporter(say)
    code = pytest.main([*OPTIONS, *["-x"] * smoke, settings["file"]], plugins=[reporter])
    outcomes = dict(reporter.outcomes)
    assert code in (pytest.ExitCode.OK,), f"pytest ended with {code!s}: {outcomes}"
    return outcomes
