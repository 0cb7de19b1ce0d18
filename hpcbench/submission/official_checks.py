"""The official checkers of a submission's tree, run in this process: ``package_checker`` and ``repo_checker``.

``package_checker`` runs the checkers of system descriptions, compliance, seeds and convergence points, and writes a
``scaling.json`` beside logs that converged faster than the reference, within its limits.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

SUCCESS = "PACKAGE CHECKER FOUND NO ERRORS"
CLEAN = "ALL CHECKS PASSED"


@dataclass(frozen=True)
class OfficialVerdict:
    """What the checkers say."""

    passed: bool
    errors: tuple[str, ...]
    """Their errors, each once and on one line."""
    warnings: tuple[str, ...]


def check_tree(folder: Path, ruleset: str) -> OfficialVerdict:
    """Run the checkers on the tree of an organization. If one crashes, that is an error of the verdict."""
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.package_checker.package_checker import check_training_package
    from mlperf_logging.repo_checker.repo_checker import run_checks

    with captured_logging() as records:
        try:
            mlp_compliance.enqueued_configs.clear()
            check_training_package(str(folder), "hpc", ruleset, False, False, False, False, False, "")
            run_checks(str(folder))
        except Exception as error:
            logging.error("the package checker itself failed (%s: %s)", type(error).__name__, error)
        finally:
            mlp_compliance.enqueued_configs.clear()
    said = [(record.levelno, one_line(record.getMessage(), folder)) for record in records]
    passed = all(any(word in text for _, text in said) for word in (SUCCESS, CLEAN))
    errors = dict.fromkeys(text for level, text in said if level >= logging.ERROR)
    noted = dict.fromkeys(text for level, text in said if level == logging.WARNING)
    return OfficialVerdict(passed, tuple(errors), tuple(noted))


class Catcher(logging.Handler):
    """Collects log records in a list."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.INFO)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self._records.append(record)


def one_line(message: str, folder: Path) -> str:
    """A message on one line, without the path of the tree."""
    return " ".join(message.replace(f"{folder}/", "").split())[:400]


@contextmanager
def captured_logging() -> Iterator[list[logging.LogRecord]]:
    """Collect log messages instead of showing them; restores the logging configuration afterwards."""
    records: list[logging.LogRecord] = []
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = [Catcher(records)]
    root.setLevel(logging.INFO)
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield records
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
