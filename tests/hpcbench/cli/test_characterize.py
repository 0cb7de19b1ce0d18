"""``hpcbench characterize`` and ``hpcbench kernels``: files that they leave, and one line for bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.characterisation.file import read_characterisation, write_characterisation
from hpcbench.cli.main import main
from tests.hpcbench.characterisation.made import made
from tests.hpcbench.characterisation.test_counters import PERF

pytestmark = pytest.mark.usefixtures("forked_processes")

SMOKE = ["characterize", "cosmoflow", "--preset", "smoke"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_counts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMOKE, "--counts-only", "--train.precision", "32-true"]) == 0
    text = capsys.readouterr().out
    assert "cosmoflow smoke, local batch 4, 32-true" in text
    assert "Written: cosmoflow-smoke-characterisation.json" in text
    found = read_characterisation(Path("cosmoflow-smoke-characterisation.json"))
    assert found.roofs == found.steps == ()
    assert {kernel.alone_s for kernel in found.kernels} == {None}
    assert found.input.stored_bytes is not None
    assert Path("cosmoflow-smoke-characterisation.html").exists()


def test_measured_on_one_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMOKE, "--seconds", "0.5", "--out", "a.json", "--machine-out", "m.yaml", "--parallel.threads", "1",
                 "--train.precision", "32-true"]) == 0  # fmt: skip
    found = read_characterisation(Path("a.json"))
    (steps,) = found.steps
    assert steps.ranks == 1
    assert steps.median_s > 0
    assert found.roof("compute", "float32") is not None
    assert [kernel.operation for kernel in found.kernels if kernel.alone_s is None] == []
    assert found.profile["convolution"] > 0
    assert found.footprint.measured_peak is not None
    assert Path("m.yaml").exists()


@pytest.mark.slow
def test_a_file_is_read_instead(capsys: pytest.CaptureFixture[str]) -> None:
    write_characterisation(made(), Path("made.json"))
    Path("perf.csv").write_text(PERF)
    exports = ["--hatchet", "h.json", "--extra-p", "e.jsonl", "--dlio", "d.yaml"]
    counters = ["--counters", "perf.csv", "--counted-steps", "4"]
    assert main(["characterize", "--from", "made.json", "--out", "with.json", *counters, *exports]) == 0
    assert read_characterisation(Path("with.json")).moved[0].steps == 4
    assert all(Path(name).exists() for name in ("with.html", "h.json", "e.jsonl", "d.yaml"))
    # A counter saw 2.5 GiB in four steps.
    assert "640 MiB" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("perf"))


REFUSED = [
    ([], "name an application, or a characterisation to read with --from FILE"),
    (["cosmoflow", "--from", "made.json"], "and not both"),
    (["--from", "made.json", "--optim.lr", "1"], "--optim.lr is for a measurement"),
    (["--from", "none.json"], "none.json cannot be read"),
    (["cosmoflow", "--counted-steps", "3"], "--counted-steps says what --counters cover"),
    (["cosmoflow", "--counters", "perf.csv", "--counted-steps", "0"], "--counted-steps (0) must be at least 1"),
    (["cosmoflow", "--out", "made.json"], "made.json is there already; give another name, or remove it"),
    (["cosmoflow", "--machine-out", "made.json"], "made.json is there already"),
    (["cosmoflow", "--storage", "nowhere"], "--storage nowhere is no folder"),
    (["cosmoflow", "--counters", "made.json"], "is no output of perf stat"),
    (["cosmoflow", "--seconds", "0"], "must be a number of seconds above 0"),
    (["cosmoflow", "--seconds", "soon"], "(soon) must be a number of seconds above 0"),
    (["cosmofow"], "unknown application 'cosmofow'; did you mean 'cosmoflow'"),
    (["cosmoflow", "--preset", "small"], "cosmoflow has no preset 'small'"),
    (["cosmoflow", "--parallel.spatial", "2", "--counts-only"], "parallel.spatial"),
    (["cosmoflow", "--data.root", "nowhere", "--counts-only"], "nowhere"),
]


@pytest.mark.parametrize(
    ("words", "said"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_characterisation(made(), Path("made.json"))
    Path("perf.csv").write_text(PERF)
    before = {path: path.stat().st_mtime_ns for path in Path().iterdir()}
    assert main(["characterize", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in Path().iterdir()} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cosmoflow", "--kind", "convolutoin"], "--kind (convolutoin) is no kind of operation; did you mean"),
        (["cosmoflow", "--top", "0"], "--top (0) must be at least 1"),
        (["nothing"], "unknown application 'nothing'"),
    ],
)
def test_bad_input_of_kernels(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_kernels_of_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seconds", "0.2", "--kind", "convolution", "--parallel.threads", "1", "--train.precision", "32-true"]
    assert main(["kernels", "cosmoflow", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    start = next(number for number, line in enumerate(lines) if line.startswith("operation"))
    rows = lines[start + 2 : start + 8]
    assert {row.split()[0].rstrip(".") for row in rows} <= {"convolution", "convolution_backward", "convolution_backw"}
    assert len(rows) == 6


@pytest.mark.slow
def test_two_ranks_have_curves_and_growth(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpcbench", *SMOKE, "--seconds", "1", "--parallel.devices", "2",
               "--parallel.threads", "1", "--out", "two.json", "--train.precision", "32-true"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = read_characterisation(tmp_path / "two.json")
    assert [steps.ranks for steps in found.steps] == [1, 2]
    assert len(found.steps[1].rank_s) == 2
    assert {(curve.operation, curve.link) for curve in found.curves} == {
        ("all_reduce", "within a node"), ("exchange", "within a node"),
    }  # fmt: skip
    (gradients,) = found.messages
    assert gradients.exposed_s is not None


@pytest.mark.slow
def test_two_ranks_that_share_samples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpcbench", *SMOKE, "--seconds", "1", "--parallel.devices", "2",
               "--parallel.threads", "1", "--parallel.spatial", "2", "--out", "two.json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = read_characterisation(tmp_path / "two.json")
    assert [steps.ranks for steps in found.steps] == [2]
    assert {message.kind for message in found.messages} == {"gradients", "halo"}
