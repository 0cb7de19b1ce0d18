"""``hpcbench characterize`` and ``hpcbench kernels``: files that they leave, and one line for bad input."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.characterisation.file import read_characterisation, write_characterisation
from hpcbench.cli import characterize
from hpcbench.cli.main import main
from hpcbench.config.schema import RunConfig
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


def test_counts_of_samples_that_are_split_need_the_ranks_that_share_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMOKE, "--counts-only", "--parallel.spatial", "2"]) == 2
    assert "parallel.spatial (2) splits a sample over 2 ranks" in capsys.readouterr().err


def test_a_file_that_another_made_meanwhile_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(args: argparse.Namespace, config: RunConfig) -> int:
        Path("a.json").write_text("mine")
        Path("a-2.json").write_text("mine, too")
        return characterize.deliver(args, made())

    monkeypatch.setattr(characterize, "measure", measure)
    assert main([*SMOKE, "--out", "a.json", "--machine-out", "m.yaml"]) == 0
    assert (Path("a.json").read_text(), Path("a-2.json").read_text()) == ("mine", "mine, too")
    assert read_characterisation(Path("a-3.json")) == made()
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "Written: a-3.json (a.json has come to exist and is left as it is)", "Written: a.html", "Written: m.yaml",
    ]  # fmt: skip
    assert sorted(path.name for path in Path().iterdir()) == ["a-2.json", "a-3.json", "a.html", "a.json", "m.yaml"]


def test_measured_on_one_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMOKE, "--seconds", "0.5", "--out", "a.json", "--machine-out", "m.yaml", "--parallel.threads", "1",
                 "--train.precision", "32-true"]) == 0  # fmt: skip
    found = read_characterisation(Path("a.json"))
    (steps,) = found.steps
    assert steps.ranks == 1
    assert steps.median_s > 0
    assert found.roof("compute", "float32") is not None
    lacks = any(note.startswith("no roof of products in bfloat16") for note in found.notes)
    assert lacks == (found.roof("compute", "bfloat16") is None)
    assert [kernel.operation for kernel in found.kernels if kernel.alone_s is None] == []
    assert found.profile["convolution"] > 0
    assert found.longest[0].kind in found.profile
    assert 0 < sum(each.seconds for each in found.longest) <= sum(found.profile.values())
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "cosmoflow-smoke-characterisation.json (the default of --out) is there already; give another name with "
         "--out, or remove it"),
        (["--out", "new.json", "--page", "cosmoflow-smoke-characterisation.json"],
         "--page cosmoflow-smoke-characterisation.json is there already"),
        (["--preset", "laptop", "--hatchet", "cosmoflow-laptop-characterisation.json"],
         "the default of --out and --hatchet are both cosmoflow-laptop-characterisation.json; give each a name of its"),
    ],
)  # fmt: skip
def test_an_option_that_was_not_given_is_not_blamed(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cosmoflow-smoke-characterisation.json").write_text("")
    assert main(["characterize", "cosmoflow", "--counts-only", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"hpcbench: error: {said}")
    assert error.count("\n") == 1


def test_a_default_that_cannot_be_written_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(**folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(characterize, "TemporaryFile", denied)
    assert main(["characterize", "cosmoflow", "--counts-only"]) == 2
    assert capsys.readouterr().err == (
        "hpcbench: error: cosmoflow-smoke-characterisation.json (the default of --out) cannot be written "
        "(Permission denied); give another name with --out\n"
    )


REFUSED = [
    ([], "name an application, or a characterisation to read with --from FILE"),
    (["cosmoflow", "--from", "made.json"], "and not both"),
    (["--from", "made.json", "--optim.lr", "1"], "--optim.lr is for a measurement"),
    (["--from", "none.json"], "none.json cannot be read"),
    (["cosmoflow", "--counted-steps", "3"], "--counted-steps says what --counters cover"),
    (["cosmoflow", "--counters", "perf.csv", "--counted-steps", "0"], "--counted-steps (0) must be at least 1"),
    (
        ["cosmoflow", "--out", "made.json"],
        "--out made.json is there already; give another name with --out, or remove it",
    ),
    (["cosmoflow", "--out", "new.json", "--page", "made.json"], "--page made.json is there already"),
    (
        ["cosmoflow", "--out", "perf.json"],
        "perf.html (the default of --page) is there already; give another name with --page",
    ),
    (["cosmoflow", "--out", "."], "--out . is a folder; give the name of a file"),
    (["cosmoflow", "--out", "a.html"], "--out and the default of --page are both a.html; give each a name of its own"),
    (["cosmoflow", "--hatchet", "a", "--extra-p", "./a"], "--hatchet and --extra-p are both a; give each a name of"),
    (
        ["cosmoflow", "--page", "perf.csv/page.html"],
        "--page perf.csv/page.html cannot be written (Not a directory); give another name with --page",
    ),
    (["cosmoflow", "--dlio", "perf.csv/a"], "--dlio perf.csv/a cannot be written (Not a directory); give another"),
    (["--from", "made.json", "--page", "made.json"], "--page made.json is there already"),
    (["--from", "made.json", "--counts-only"], "--counts-only is for a measurement; leave it out when --from reads"),
    (["--from", "made.json", "--preset", "smoke"], "--preset is for a measurement"),
    (["--from", "made.json", "--seconds", "3"], "--seconds is for a measurement"),
    (["--from", "made.json", "--storage", "."], "--storage is for a measurement"),
    (["--from", "made.json", "--config", "perf.csv"], "--config is for a measurement"),
    (["--from", "."], ". is a folder; give the file that `hpcbench characterize --out FILE` wrote"),
    (["--from", "empty.json"], "empty.json: kernels must not be empty"),
    (["cosmoflow", "--counts-only", "--storage", "."], "--storage needs a measurement, and --counts-only makes none"),
    (["cosmoflow", "--counts-only", "--extra-p", "a"], "--extra-p needs a measurement, and --counts-only makes none"),
    (["cosmoflow", "--counters", "bytes"], "--counters bytes is no text"),
    (["cosmoflow", "--machine-out", "made.json"], "--machine-out made.json is there already"),
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
    write_characterisation(made(kernels=()), Path("empty.json"))
    Path("perf.csv").write_text(PERF)
    Path("perf.html").write_text("a page")
    Path("bytes").write_bytes(b"\xff\x00")
    before = {path: path.stat().st_mtime_ns for path in Path().iterdir()}
    assert main(["characterize", *words]) == 2
    out, error = capsys.readouterr()
    assert said in error
    assert error.count("\n") == 1
    assert out == ""
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
def test_the_optimizer_is_timed_as_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seconds", "0.1", "--kind", "optimizer", "--parallel.threads", "1", "--train.precision", "32-true"]
    assert main(["kernels", "cosmoflow", *words]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("adamw"))
    # AdamW reads and writes 28 bytes of each of 59,612 parameters, alone in some time.
    assert row.split()[1:4] == ["59612", "1", "memory"]
    assert [word for word in row.split()[4:] if word in ("ms", "%")] == ["ms", "ms", "%", "ms"]


@pytest.mark.slow
def test_messages_of_two_ranks_are_timed_and_ranked() -> None:
    command = [sys.executable, "-m", "hpcbench", "kernels", "cosmoflow", "--seconds", "0.1", "--kind", "message",
               "--parallel.devices", "2", "--parallel.threads", "1", "--train.precision", "32-true"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    start = next(number for number, line in enumerate(lines) if line.startswith("operation"))
    (row,) = lines[start + 2 : lines.index("At least and alone are of one execution, lost is of all in a step.")]
    assert row.startswith("all-reduce  gradients, 233 KiB, within")
    assert " network " in row
    assert [word for word in row.split() if word in ("ms", "%")] == ["ms", "ms", "%", "ms"]


@pytest.mark.slow
def test_two_ranks_have_curves_and_growth(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpcbench", *SMOKE, "--seconds", "1", "--parallel.devices", "2",
               "--parallel.threads", "1", "--out", "two.json", "--train.precision", "32-true"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = read_characterisation(tmp_path / "two.json")
    assert [steps.ranks for steps in found.steps] == [1, 2]
    assert not any("not on fewer" in note for note in found.notes)
    assert len(found.steps[1].rank_s) == 2
    assert {(curve.operation, curve.link) for curve in found.curves} == {
        ("all_reduce", "within a node"), ("exchange", "within a node"),
    }  # fmt: skip
    (gradients,) = found.messages
    assert gradients.exposed_s is not None
    assert gradients.alone_s is not None
    assert gradients.alone_s > 0
    # One of its size is among the points of the sums.
    assert gradients.bytes // gradients.count in [point.bytes for point in found.curves[0].points]


@pytest.mark.slow
def test_two_ranks_that_share_samples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpcbench", *SMOKE, "--seconds", "1", "--parallel.devices", "2",
               "--parallel.threads", "1", "--parallel.spatial", "2", "--out", "two.json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = read_characterisation(tmp_path / "two.json")
    assert [steps.ranks for steps in found.steps] == [2]
    # A processor without instructions for bfloat16 adds a note of its own.
    ranks = "steps were timed on all ranks, not on fewer: spatial parallelism is on, or states are sharded"
    assert ranks in found.notes
    assert {message.kind for message in found.messages} == {"gradients", "halo"}
