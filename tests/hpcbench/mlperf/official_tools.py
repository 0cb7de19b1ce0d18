"""The official tools on a package, in this process: their verdict, their scores, and how they crash."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.package_checker import package_checker
from mlperf_logging.result_summarizer import result_summarizer

from hpcbench.mlperf.official_checker import quiet_logging

CRASH = "crash"


def read_rules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the official checker parse each of its rule files once: it takes most of its time for that."""
    parsed: dict[str, Any] = {}

    class Rules:
        BaseLoader = yaml.BaseLoader

        @staticmethod
        def load(file: Any, Loader: Any) -> Any:  # noqa: N803
            if file.name not in parsed:
                parsed[file.name] = yaml.load(file, Loader=Loader)
            return parsed[file.name]

    monkeypatch.setattr(mlp_compliance, "yaml", Rules)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the tools print is not for the tests' output."""
    mlp_compliance.enqueued_configs.clear()
    with (
        contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), quiet_logging(),
        warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        yield
    mlp_compliance.enqueued_configs.clear()


def package_verdict(organization: Path, ruleset: str) -> bool | str:
    """Whether the package checker finds no errors; the crash, where it ends with one."""
    folder = str(organization)
    try:
        with quiet():
            systems = package_checker.check_systems(folder, "hpc", ruleset)
            runs = package_checker.check_training_result_files(
                folder, "hpc", ruleset, False, False, False, False, False
            )
    except Exception as error:
        return f"{CRASH}: {type(error).__name__}: {error}"
    return bool(systems and runs)


def summarized(organization: Path, ruleset: str) -> dict[tuple[str, str], float] | str:
    """The scores of the summarizer, in minutes, by mode and benchmark, of the one system of a package."""
    try:
        with quiet():
            strong, weak, _, _ = result_summarizer.summarize_results(str(organization), "hpc", ruleset)
    except Exception as error:
        return f"{CRASH}: {type(error).__name__}: {error}"
    found = {}
    for mode, frame, end in (("strong", strong, ""), ("weak", weak, ":time_to_train_all")):
        for benchmark in ("cosmoflow", "deepcam"):
            column = f"{benchmark}{end}"
            if len(frame) and column in frame and not pd.isna(frame[column].iloc[0]):
                found[mode, benchmark] = float(frame[column].iloc[0])
    return found
