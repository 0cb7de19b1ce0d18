"""The ReFrame test, run by ReFrame on its generic system: it passes, and it fails where it should."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.documented_commands import ROOT
from tests.hpcbench_program import environment_with_hpcbench

FOLDER = ROOT / "contrib" / "reframe"
ONE = ("-P", "application=cosmoflow", "-P", "preset=smoke", "-P", "nodes=1")
SHORT = ("--train.max_epochs=2,--measure.warmup_steps=1,--train.baselines=false,"
         "--simulate.train_samples=16,--simulate.validation_samples=8")  # fmt: skip
"""Settings of a run of seconds that still has warm steps, of which samples/s are."""
FAKE = """#!/bin/sh
test "$1" = train || exit 0
mkdir run
echo '{summary}' > run/summary.json
echo '{{"bytes_per_s": 2.5e9}}' > run/staging.json
exit {code}
"""
"""Stands for hpcbench where only what ReFrame makes of a run is looked at."""
RUN = {"status": "success", "reason": "", "warm_samples_per_s": 100.0, "time_to_solution_s": 50.0}


class ReFrame:
    """ReFrame in a folder of its own, without a configuration of its user's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = environment_with_hpcbench(folder) | {"TMPDIR": str(folder), "RFM_COLORIZE": "no"}

    def instead(self, code: int = 0, **changed: object) -> None:
        """Put something in the place of hpcbench that leaves such a run and ends with ``code``."""
        program = self.folder / "bin" / "hpcbench"
        program.write_text(FAKE.format(summary=json.dumps(RUN | changed), code=code))

    def references(self, **figures: list[float | None]) -> str:
        """A file of what is expected."""
        path = self.folder / "references.yaml"
        path.write_text(yaml.safe_dump({"generic:default": {"cosmoflow-smoke-1": figures}}))
        return f"references={path}"

    def run(self, *words: str) -> tuple[int, str]:
        """The exit code of ReFrame, and all that it says."""
        command = ["reframe", "--prefix", str(self.folder), "-c", str(FOLDER / "hpcbench_train.py"), *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, text=True, stdout=-1, stderr=subprocess.STDOUT, check=False
        )
        return done.returncode, done.stdout


@pytest.fixture
def reframe(tmp_path: Path) -> ReFrame:
    """ReFrame; skips where it is not installed."""
    if shutil.which("reframe") is None:
        pytest.skip("needs ReFrame (pip install reframe-hpc)")
    return ReFrame(tmp_path)


pytestmark = pytest.mark.slow


def test_a_training_passes_with_its_figures(reframe: ReFrame) -> None:
    expected = reframe.references(samples_per_s=[0.001, -0.5, None], staging_rate=[1e-6, -0.5, None])
    settings = f"settings={SHORT},--train.target=10"
    code, said = reframe.run("-r", *ONE, "-S", settings, "-S", expected, "-S", f"stage_to={reframe.folder}/node")
    assert (code, "Ran 1/1 test case(s) from 1 check(s) (0 failure(s)" in said) == (0, True), said
    (summary,) = reframe.folder.glob("output/**/summary.json")
    assert json.loads(summary.read_text())["cause"] == "target"
    (log,) = reframe.folder.glob("perflogs/**/HpcbenchTrain.log")
    assert all(
        name in log.read_text() for name in ("samples_per_s_value", "time_to_solution_value", "staging_rate_value")
    )


def test_a_missed_target_fails(reframe: ReFrame) -> None:
    code, said = reframe.run("-r", *ONE, "-S", f"settings={SHORT},--train.target=0.000001")
    assert code != 0
    assert "hpcbench ended with exit code 3, target_not_reached: " in said


def test_a_reference_that_is_not_met_fails(reframe: ReFrame) -> None:
    reframe.instead()
    assert reframe.run("-r", *ONE, "-S", reframe.references(samples_per_s=[104, -0.05, None]))[0] == 0
    code, said = reframe.run("-r", *ONE, "-S", reframe.references(samples_per_s=[110, -0.05, None]))
    assert code != 0
    assert "samples_per_s=100.0 samples/s, expected 110" in said
    code, said = reframe.run("-r", *ONE, "-S", reframe.references(staging_rate=[2000, None, 0.1]))
    assert "staging_rate=2500.0 MB/s, expected 2000" in said


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ({"status": "aborted", "reason": "diverged at step 3", "code": 1}, "exit code 1, aborted: diverged at step 3"),
        ({"status": "aborted", "reason": "killed", "code": 0}, "exit code 0, aborted: killed"),
        ({"time_to_solution_s": None}, "there is a reference for time_to_solution, which this run did not measure"),
    ],
    ids=["exit code", "summary", "not measured"],
)
def test_what_went_wrong_is_said(left: dict[str, object], said: str, reframe: ReFrame) -> None:
    code = left.pop("code", 0)
    assert isinstance(code, int)
    reframe.instead(code, **left)
    ended, shown = reframe.run("-r", *ONE, "-S", reframe.references(time_to_solution=[60, None, 0.1]))
    assert ended != 0
    assert said in shown


def test_a_figure_that_there_is_not_is_refused(reframe: ReFrame) -> None:
    reframe.instead()
    code, said = reframe.run("-r", *ONE, "-S", reframe.references(sample_per_s=[1, None, None]))
    assert code != 0
    assert "no figure 'sample_per_s'; there are samples_per_s, time_to_solution, staging_rate" in said


def test_each_combination_is_a_test_that_asks_for_its_nodes(reframe: ReFrame) -> None:
    words = ("-P", "application=cosmoflow,deepcam", "-P", "preset=smoke,laptop", "-P", "nodes=1,2")
    code, said = reframe.run("--dry-run", *words, "-S", "ranks_per_node=4", "-S", "settings=--data.workers=2")
    assert (code, "Ran 8/8 test case(s)" in said) == (0, True), said
    scripts = [path.read_text() for path in reframe.folder.glob("stage/**/rfm_job.sh")]
    assert len(scripts) == 8
    assert sum("hpcbench train deepcam --preset laptop --data.root=data --run-dir run --data.workers=2" in text
               for text in scripts) == 2  # fmt: skip
    assert (
        sum("hpcbench data simulate cosmoflow --preset smoke --out data --data.workers=2" in text for text in scripts)
        == 2
    )
