"""A gains study from first to last, with runs that are made by arithmetic."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.definition import Gains, grow
from hpcbench.study.gains.results import OptionResult, Outcome, Results, compared, read_results
from hpcbench.study.gains.sentences import findings, heading, notes
from hpcbench.study.gains.study import read_statuses, status_text
from staging.errors import DataError, InputError
from tests.hpcbench.study.gains.conftest import FakeLauncher, Run, gains, make

pytestmark = pytest.mark.usefixtures("forked_processes")

ONLY = ("bf16", "fp16", "fused", "overlap", "overlap-4", "reader", "ranks-1")


def noise(settings: dict[str, str], what: str) -> float:
    """Between -1 and 1, the same whenever asked."""
    known = sorted((key, value) for key, value in settings.items() if key != "run-dir")
    return zlib.crc32(f"{what} {known}".encode()) / 2**31 - 1


def machine(settings: dict[str, str]) -> Run:
    """bf16 halves the compute time; the fused optimizer takes half of its own; overlap saves 8 ms, in four buckets 12;
    fp16 is slow and learns badly; a reader process changes nothing."""
    seed = int(settings["train.seed"])
    precision = settings["train.precision"]
    compute = {"bf16-mixed": 40.0, "16-mixed": 160.0}.get(precision, 80.0)
    optimizer = 5.0 if settings["optim.fused"] == "true" else 10.0
    hidden = {"true": 12.0 if "parallel.bucket_bytes" in settings else 8.0}.get(settings["parallel.overlap"], 0.0)
    alone = settings.get("parallel.devices") is None
    parts = {"compute": compute, "optimizer": optimizer, "communication": 0.0 if alone else 14.0 - hidden}
    drift = 1 + 0.1 * seed  # a machine that grows slower from one repeat to the next
    parts = {name: drift * value * (1 + 0.01 * noise(settings, name)) for name, value in parts.items()}
    bad = 0.1 if precision == "16-mixed" else 0.0
    mark = precision + str(alone)
    return Run(parts, 0.4 + bad + 0.001 * seed + 1e-4 * noise({"precision": mark}, str(seed)), mark)


def results(study: Gains, folder: StudyFolder) -> Results:
    """Of what is done."""
    return read_results(study, folder, read_statuses(study, folder))


def verdicts(results: Results) -> dict[str, str]:
    """By the names of options."""
    return {each.option.name: each.verdict for each in results.options}


@pytest.mark.slow
def test_what_helped_is_tried_together_and_the_rest_is_not(folder: StudyFolder) -> None:
    study, launcher = gains(only=ONLY), FakeLauncher(machine)
    make(study, folder, launcher)
    found = results(study, folder)
    assert verdicts(found) == {
        "bf16": "faster", "fp16": "worse quality", "fused": "faster", "overlap": "faster", "overlap-4": "faster",
        "reader": "no difference seen", "ranks-1": "faster",
    }  # fmt: skip
    # One rank is left, which sends nothing, so overlap is not taken along.
    assert found.together is not None
    assert found.together.option.label == "together: bf16, fused optimizer, 1 rank x 2 threads"
    assert found.together.ratio is not None
    low, high = found.together.ratio.interval
    assert low < 45 / 104 < high
    assert high - low < 0.02
    assert len(launcher.started) == 6 * 8 + 6 * 2
    assert found.again is not None
    assert len(found.again.runs) == 6


@pytest.mark.slow
def test_ratios_are_of_the_same_repeat_so_that_drift_is_in_none(folder: StudyFolder) -> None:
    study = gains(only=["bf16", "overlap", "overlap-4"])
    make(study, folder, FakeLauncher(machine))
    found = results(study, folder)
    bf16 = found.options[0]
    assert bf16.ratio is not None
    assert bf16.ratio.ratio == pytest.approx(64 / 104, rel=0.01)
    # The repeats themselves are 50 % apart.
    assert max(bf16.values("step_s")) / min(bf16.values("step_s")) > 1.4
    assert bf16.ratio.interval[1] / bf16.ratio.interval[0] < 1.03
    # In seconds the part changes by 40 ms, times the drift, whose mean is 1.35.
    assert set(bf16.changed_s) == {"compute"}
    assert bf16.changed_s["compute"] == pytest.approx(-0.040 * 1.35, rel=0.05)


@pytest.mark.slow
def test_of_a_factor_the_fastest_is_taken(folder: StudyFolder) -> None:
    study = gains(only=["bf16", "overlap", "overlap-4"])
    make(study, folder, FakeLauncher(machine))
    together = results(study, folder).together
    assert together is not None
    assert together.option.name == "together-bf16+overlap-4"
    assert "parallel.bucket_bytes" in together.option.settings


@pytest.mark.slow
def test_equal_trainings_are_told_and_not_compared(folder: StudyFolder) -> None:
    study = gains(only=["bf16", "overlap"])
    make(study, folder, FakeLauncher(machine))
    bf16, overlap = results(study, folder).options
    assert overlap.same_training
    assert overlap.quality is None
    assert not bf16.same_training
    assert bf16.quality is not None
    assert bf16.quality.p > 0.05


@pytest.mark.slow
def test_an_option_that_fails_is_started_once_and_listed_with_its_reason(folder: StudyFolder) -> None:
    def without_compiler(settings: dict[str, str]) -> Run:
        return Run({}) if settings["train.compile"] == "true" else machine(settings)

    study, launcher = gains(only=["bf16", "fused", "compiled"]), FakeLauncher(without_compiler)
    make(study, folder, launcher)
    assert sum(each["train.compile"] == "true" for each in launcher.started) == 1
    found = results(study, folder)
    assert verdicts(found)["compiled"] == "cannot run"
    assert found.options[1].failed == "exit code 1: no compiler"
    assert found.together is not None
    # A retry makes it again, with all that depends on it.
    make(study, folder, FakeLauncher(machine), retry=True)
    assert len(results(study, folder).options[1].runs) == 6


@pytest.mark.slow
def test_runs_that_diverge_make_an_option_worse(folder: StudyFolder) -> None:
    def diverging(settings: dict[str, str]) -> Run:
        return Run(quality=math.inf, mark="x") if settings["train.precision"] == "16-mixed" else machine(settings)

    study = gains(only=["bf16", "fp16"])
    make(study, folder, FakeLauncher(diverging))
    fp16 = results(study, folder).options[1]
    assert fp16.diverged == 6
    assert (fp16.verdict, fp16.ratio) == ("worse quality", None)


@pytest.mark.slow
def test_a_machine_that_is_all_noise_shows_nothing_and_tries_nothing_together(folder: StudyFolder) -> None:
    def noisy(settings: dict[str, str]) -> Run:
        return Run({"compute": 100 * math.exp(0.5 * noise(settings, "time"))}, mark=settings["train.precision"])

    study = gains(only=["bf16", "fused", "overlap"], repeats=4)
    make(study, folder, FakeLauncher(noisy))
    found = results(study, folder)
    assert set(verdicts(found).values()) == {"no difference seen"}
    assert found.together is None


@pytest.mark.slow
def test_a_study_that_was_cut_off_goes_on_and_grows(folder: StudyFolder) -> None:
    study = gains(only=["bf16", "fused"], repeats=2)
    make(study, folder, FakeLauncher(machine))
    folder.clear("bf16-r2")
    assert results(study, folder).together is None
    launcher = FakeLauncher(machine)
    make(study, folder, launcher)
    assert [each["train.precision"] for each in launcher.started] == ["bf16-mixed"]
    more = grow(study, gains(only=["bf16", "overlap"], repeats=3), folder.path)
    assert [each.name for each in more.options] == ["bf16", "fused", "overlap"]
    launcher = FakeLauncher(machine)
    make(more, folder, launcher)
    # A third repeat of the baseline and two options, three of the new one, and what is together now.
    assert len(launcher.started) == 3 + 3 + 1 + 3


def start(folder: StudyFolder, day: int, repeat: int, *options: str) -> None:
    """Let the runs of these options follow one another in a repeat, 100 seconds each; a repeat begins every hour."""
    for place, name in enumerate(options):
        run = RunFolder(folder.run(f"{name}-r{repeat}"))
        at = f"2026-03-{day:02d}T{repeat:02d}:{100 * place // 60:02d}:{100 * place % 60:02d}+00:00"
        run.write_summary(replace(run.read_summary(), started=at, wall_s=100.0))


@pytest.mark.slow
def test_options_of_another_day_are_not_compared_with_the_baseline(folder: StudyFolder) -> None:
    study = gains(only=["bf16"], repeats=3)
    make(study, folder, FakeLauncher(machine))
    study = grow(study, gains(only=["bf16", "fused", "overlap"], repeats=3), folder.path)
    make(study, folder, FakeLauncher(machine))
    for repeat in (1, 2, 3):
        start(folder, 1, repeat, "baseline", "bf16")
        start(folder, 2, repeat, "fused", "overlap")
    found = results(study, folder)
    assert verdicts(found) == {"bf16": "faster", "fused": "measured apart", "overlap": "measured apart"}
    assert [(each.apart, each.repeat_ratios, each.changed_s) for each in found.options[1:]] == [(3, (), {})] * 2
    assert heading(study, replace(found, options=found.options[1:])).startswith("What optimisation brings to a step")
    said = "No time is compared of fused optimizer, overlap, which did not run beside the baseline."
    assert findings(found, "mae")[-1] == said
    assert [line for line in notes(study, found, 5) if line.startswith("fused optimizer: 3 of 3 runs began more than")]
    study = grow(study, gains(only=["bf16", "fused", "overlap"], repeats=6), folder.path)
    make(study, folder, FakeLauncher(machine))
    for repeat in (4, 5, 6):
        start(folder, 3, repeat, "overlap", "fused", "baseline", "bf16")
    found = results(study, folder)
    assert set(verdicts(found).values()) == {"faster"}
    assert [each.ratio and each.ratio.repeats for each in found.options] == [6, 3, 3]


def test_what_a_failed_or_diverged_run_took_is_part_of_its_repeat() -> None:
    """Runs on both sides of it follow one another all the same."""

    def run(started_s: float, step_s: float) -> Outcome:
        return Outcome(1, step_s, started_s=started_s, wall_s=100.0)

    fused, fp16 = gains(only=["fused", "fp16"]).options
    baseline = OptionResult(fused, runs=(run(0.0, 0.1),))
    other = OptionResult(fused, runs=(run(4000.0, 0.09),))
    for slow in (
        OptionResult(fp16, failed="no memory", lost_s={1: 3800.0}),
        OptionResult(fp16, runs=(Outcome(1, wall_s=3800.0),)),
    ):
        assert compared([other, slow], baseline, "lower")[0].apart == 0
    assert compared([other], baseline, "lower")[0].apart == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 30}, "holds another study: its steps is 20, this one's 30; give another --study-dir"),
        ({"ranks": 1}, "holds another study: its ranks is 2, this one's 1; give another --study-dir"),
        ({"settings": {"optim.lr": "1"}}, "its optim.lr is the preset's, this one's 1; give another --study-dir"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, object], message: str) -> None:
    old = gains()
    settings = {**old.settings, **change.pop("settings", {})}  # type: ignore[dict-item]
    with pytest.raises(InputError, match=re.escape(message)):
        grow(old, gains(settings=settings, **change), Path("studies/gains"))


def test_the_definition_is_read_back_as_it_was(tmp_path: Path) -> None:
    study = gains()
    path = tmp_path / "study.json"
    found = json.loads(json.dumps(study.as_dict()))
    assert Gains.from_dict(found, path) == study
    with pytest.raises(DataError, match="is damaged"):
        Gains.from_dict({**found, "options": [{"name": "bf16"}]}, path)
    with pytest.raises(DataError, match="is a study of the kind 'strong', not 'gains'"):
        Gains.from_dict({**found, "kind": "strong"}, path)


def text(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What a command prints."""
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_report_status_and_copy(folder: StudyFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study = gains(only=ONLY)
    make(study, folder, FakeLauncher(machine))
    said = text(capsys, "study", "report", folder.path)
    table = folder.table.read_text(encoding="utf-8")
    assert table.rstrip("\n") in said
    assert max(map(len, table.splitlines())) <= 100
    assert table.startswith("bf16, fused optimizer and 1 rank x 2 threads make a step of cosmoflow 2.")
    assert "TF32; CUDA graph: no GPU" in table
    frame = pd.read_csv(folder.results)
    assert len(frame) == 6 * (len(ONLY) + 1) + 12
    bf16 = frame[frame["option"] == "bf16"].set_index("repeat")["step_s"]
    plain = frame[frame["option"] == "baseline"].set_index("repeat")["step_s"]
    geometric = float((bf16 / plain).prod() ** (1 / 6))
    assert re.search(rf"^bf16 +6 +[\d.]+ +{geometric:.3f} ", table, re.MULTILINE)
    page = (folder.path / "gains.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "runs: 60 reached, 0 left" in text(capsys, "study", "status", folder.path)
    copy = tmp_path / "copy"
    assert text(capsys, "study", "collect", folder.path, "--out", copy) == f"{copy}: 60 runs\n"
    assert not [path for path in copy.rglob("*") if path.is_file() and b"laptop-17" in path.read_bytes()]
    before = (copy / "table.txt").read_text(encoding="utf-8")
    text(capsys, "study", "report", copy)
    assert (copy / "table.txt").read_text(encoding="utf-8") == before
    assert "no job of" in text(capsys, "study", "cancel", folder.path)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line of an error."""
    assert main([str(word) for word in words]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_a_study_without_runs_has_no_page(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    make(gains(only=["bf16"], repeats=1), folder, FakeLauncher(lambda settings: Run({})))
    line = refused(capsys, "study", "report", folder.path)
    assert "has no run that is done: exit code 1: no compiler" in line
    assert "failed: exit code 1: no compiler" in status_text(gains(only=["bf16"], repeats=1), folder)


def test_options_of_scaling_pages_are_refused(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    make(gains(only=["bf16"], repeats=1), folder, FakeLauncher(machine))
    line = refused(capsys, "study", "report", folder.path, "--runs", "3")
    assert f"--runs is for scaling studies, and {folder.path} is a gains study" in line


def test_two_repeats_say_that_they_cannot_show_a_quality(folder: StudyFolder) -> None:
    study = gains(only=["bf16", "fp16"], repeats=2)
    make(study, folder, FakeLauncher(machine))
    found: Sequence[str] = notes(study, results(study, folder), 5)
    assert "2 repeats cannot show a difference in quality of one of 2 options; 5 could (--repeats 5)." in found
