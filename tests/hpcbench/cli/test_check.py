"""``hpcbench check`` on published logs and made-up submissions: its tables, its exit codes, its errors."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.measure.mllog import RunLog
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from tests.hpcbench.measure.driven_logs import drive
from tests.hpcbench.mlperf.packages import make_folder

LOGS = Path(__file__).parents[2] / "data" / "logs"
PASSES, LACKS_SEED, FAILS = (
    LOGS / f"{name}.txt" for name in ("v1.0-nvidia-deepcam", "v1.0-nvidia-cosmoflow", "v0.7-fujitsu-deepcam")
)


def cells(output: str) -> list[list[str]]:
    """Rows of the first table, below its rule."""
    lines = output.split("\n\n", maxsplit=1)[0].splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("--"))
    return [line.split() for line in lines[rule + 1 :]]


def test_a_log_that_passes_ends_with_0(capsys):
    assert main(["check", str(PASSES)]) == 0
    output = capsys.readouterr().out
    assert cells(output)[0][1:] == ["deepcam", "closed", "3.0.0", "0", "pass"]
    assert "Ruleset 3.0.0, where neither a round's folder nor a run's summary names one" in output


def test_a_log_that_cannot_be_read_ends_with_2(tmp_path, capsys, monkeypatch):
    """For root every file can be read."""
    log = tmp_path / "log.txt"
    log.write_text("any")

    def refused(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("staging.formats.regular.read_text", refused)
    assert main(["check", str(log)]) == 2
    assert f"{log}: cannot be read (Permission denied); check its permissions" in capsys.readouterr().err


def test_a_folder_that_cannot_be_listed_ends_with_2(tmp_path, capsys, monkeypatch):
    """Its organization would be said to hold no log; for root every folder can be listed."""
    benchmark = make_folder(tmp_path / "ORG", "deepcam", random.Random(1))
    make_folder(tmp_path / "OTHER", "deepcam", random.Random(2))
    assert main(["check", str(tmp_path)]) == 0
    capsys.readouterr()
    scandir, listdir = os.scandir, os.listdir

    def refused(real):
        def look(path="."):
            if Path(path) == benchmark:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        return look

    monkeypatch.setattr(os, "scandir", refused(scandir))
    monkeypatch.setattr(os, "listdir", refused(listdir))
    assert main(["check", str(tmp_path)]) == 2
    assert f"{benchmark} cannot be read (Permission denied); make it readable" in capsys.readouterr().err


def test_one_log_that_fails_ends_with_1_and_says_why(capsys):
    assert main(["check", str(PASSES), str(FAILS), "--ruleset", "1.0.0"]) == 1
    output = capsys.readouterr().out
    assert [row[-1] for row in cells(output)] == ["pass", "FAIL"]
    assert "Required EXACTLY_ONE occurrence of 'number_of_nodes' but found 0" in output
    assert "Ruleset 3.0.0" not in output


def test_what_lies_beyond_the_official_checker_is_a_note(capsys):
    assert main(["check", str(LACKS_SEED)]) == 0
    output = capsys.readouterr().out
    assert cells(output)[0][-2:] == ["1", "pass"]
    assert "note: no seed is logged" in " ".join(output.split())


def test_another_division_can_be_asked_for(capsys):
    assert main(["check", str(LACKS_SEED), "--division", "open"]) == 0
    assert cells(capsys.readouterr().out)[0][2] == "open"


def test_a_target_of_ones_own_is_no_pass(tmp_path, capsys):
    """The demo's runs are such: right, but no result of the official rules."""
    drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.3), target=0.35)
    assert main(["check", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert cells(output)[0][-2:] == ["own", "target"]
    assert "the published quality is not reached, but the target that the log names is" in output
    assert "pass" not in output


def test_a_folder_of_runs_keeps_the_rules_of_a_package(tmp_path, capsys):
    folder = make_folder(tmp_path, "deepcam", random.Random(1))
    assert main(["check", str(folder)]) == 0
    output = capsys.readouterr().out
    row = cells(output)[0]
    assert output.startswith("deepcam, time to train\n")
    assert row[-6:] == ["closed", "3.0.0", "5", "0", row[-2], "pass"]
    main(["check", str(folder), "--ruleset", "2.0.0"])
    assert "3.0.0" not in capsys.readouterr().out, "no note names another ruleset than the one asked for"
    (folder / "result_4.txt").unlink()
    shutil.copy(folder / "result_0.txt", folder / "result_1.txt")
    assert main(["check", str(folder)]) == 1
    output = capsys.readouterr().out
    assert "count: 4 runs, exactly 5 needed" in output
    assert "seeds: result_1.txt has seed 1000 of result_0.txt" in output
    main(["check", str(folder), "--division", "open"])
    assert "seeds: " not in capsys.readouterr().out


def test_a_folder_of_several_benchmarks_or_batches_is_bad_input(tmp_path, capsys):
    folder = make_folder(tmp_path, "deepcam", random.Random(1))
    path = folder / "result_3.txt"
    text = path.read_text()
    path.write_text(
        text.replace('"key": "global_batch_size", "value": 2048', '"key": "global_batch_size", "value": 512')
    )
    assert path.read_text() != text
    assert main(["check", str(folder)]) == 2
    words = " ".join(capsys.readouterr().err.split())
    assert "has runs of 2 global batches: 2048 (result_0.txt), 512 (result_3.txt); give runs of one" in words
    path.write_text(text.replace('"value": "deepcam"', '"value": "cosmoflow"'))
    assert main(["check", str(folder)]) == 2
    words = " ".join(capsys.readouterr().err.split())
    assert "has runs of 2 benchmarks: deepcam (result_0.txt), cosmoflow (result_3.txt); give" in words


def test_one_bad_log_is_accepted_and_two_are_not(tmp_path, capsys):
    folder = make_folder(tmp_path, "deepcam", random.Random(1))
    for number, code in enumerate((0, 1)):
        path = folder / f"result_{number}.txt"
        path.write_text(path.read_text().replace('"submission_org"', '"organization"'))
        assert main(["check", str(folder)]) == code
        output = capsys.readouterr().out
        assert "result_0.txt: Required EXACTLY_ONE occurrence of 'submission_org' but found 0" in output
    assert "logs: 2 are not accepted, one may: result_0, result_1" in output


def test_a_round_is_checked_by_its_own_rules(tmp_path, capsys):
    """An organization in each of two rounds; one lacks its system description."""
    make_folder(tmp_path / "hpc_results_v1.0" / "ONE", "deepcam", random.Random(1))
    make_folder(tmp_path / "v2.0" / "TWO", "deepcam", random.Random(2), weak=True)
    assert main(["check", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert [row.split() for row in output.split("\n\n")[2].splitlines()[2:]] == [
        ["ONE", "v1.0", "1.0.0", "1", "0", "pass"], ["TWO", "v2.0", "2.0.0", "1", "0", "pass"],
    ]  # fmt: skip
    assert "note: alone: throughput without a time to train of deepcam" in output
    (tmp_path / "v2.0" / "TWO" / "systems" / "box.json").unlink()
    assert main(["check", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert "crash: systems/box.json: FileNotFoundError" in output
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.parametrize(("name", "said"), [("protein", "protein is none"), (None, "the logs name none")])
def test_runs_of_a_benchmark_without_rules_do_not_pass(tmp_path, capsys, name, said):
    text = PASSES.read_text("latin-1").replace('"deepcam"', f'"{name}"') if name else "no log\n"
    (tmp_path / "result_0.txt").write_text(text)
    assert main(["check", str(tmp_path)]) == 1
    assert f"benchmark: {said} of cosmoflow, deepcam, oc20, openfold" in capsys.readouterr().out


def test_an_organization_without_runs_does_not_pass(tmp_path, capsys):
    """The official package checker finds no error in it."""
    make_folder(tmp_path / "v1.0" / "ONE", "deepcam", random.Random(1))
    (tmp_path / "v1.0" / "TWO" / "results" / "box" / "strong").mkdir(parents=True)
    assert main(["check", str(tmp_path / "v1.0")]) == 1
    output = capsys.readouterr().out
    assert [row.split() for row in output.split("\n\n")[1].splitlines()[2:]] == [
        ["ONE", "v1.0", "1.0.0", "1", "0", "pass"], ["TWO", "-", "-", "-", "-", "no", "runs"],
    ]  # fmt: skip
    assert "its folder results holds no result_*.txt; add the logs, or leave the folder out" in output


def test_the_first_round_has_no_rules(tmp_path, capsys):
    folder = tmp_path / "v0.7" / "ORG" / "results" / "box" / "deepcam"
    folder.mkdir(parents=True)
    shutil.copy(FAILS, folder / "result_0.txt")
    for path in (tmp_path / "v0.7", folder / "result_0.txt"):
        assert main(["check", str(path)]) == 1
        output = capsys.readouterr().out
        assert cells(output)[0][-2:] == ["no", "rules"]
        assert "round v0.7 has no official HPC ruleset; --ruleset 1.0.0 checks it" in output
    assert main(["check", str(tmp_path / "v0.7"), "--ruleset", "1.0.0"]) == 1
    output = capsys.readouterr().out
    assert cells(output)[0][-1] == "FAIL"
    assert "ruleset: None" not in output


def test_checking_writes_nothing(tmp_path, monkeypatch):
    """The official package checker writes scaling.json into this folder."""
    folder = make_folder(tmp_path / "ORG", "deepcam", random.Random(1))
    for path in folder.iterdir():
        path.write_text(
            re.sub(r'"epoch_num": (\d+)', lambda found: f'"epoch_num": {int(found[1]) - 1}', path.read_text())
        )
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    assert main(["check", "ORG", "--ruleset", "1.0.0"]) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_folder_is_checked_under_its_own_ruleset(tmp_path, capsys):
    folder = RunFolder.create(tmp_path / "run")
    shutil.copy(PASSES, folder.mllog)
    folder.write_summary(Summary("deepcam", "t", "mlperf", ruleset="2.0.0"))
    assert main(["check", str(folder.path)]) == 0
    output = capsys.readouterr().out
    assert cells(output)[0][:4] == ["run", "deepcam", "closed", "2.0.0"]
    assert "Ruleset" not in output


def test_an_aborted_run_fails_with_its_reason(tmp_path, capsys):
    log = RunLog(tmp_path / "mllog.txt")
    log.init_start()
    log.run_stop("aborted", "the loss is not finite at step 17")
    assert main(["check", str(tmp_path)]) == 1
    assert "run_stop has status 'aborted' (the loss is not finite at step 17)" in capsys.readouterr().out


def test_no_line_is_longer_than_100_columns(tmp_path, capsys):
    name = "a-very-long-name-" * 12
    (tmp_path / name).mkdir()
    shutil.copy(FAILS, tmp_path / name / "mllog.txt")
    main(["check", str(tmp_path / name), str(LACKS_SEED)])
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}/none"], "none does not exist; give a run folder, a log, or a folder of a round"),
        (["{tmp}/ORG/results"], "holds no mllog.txt and no result_*.txt"),
        ([str(PASSES), "--ruleset", "0.7.0"], "ruleset 0.7.0 is not one of 1.0.0, 2.0.0, 3.0.0"),
        ([str(PASSES), "--division", "shut"], "division 'shut' is neither open nor closed"),
        (["{tmp}/hello.txt"], "hello.txt: holds no line of an official log (:::MLLOG); give logs of MLPerf HPC"),
        (
            ["{tmp}/hello.txt", "{tmp}/LICENSE"],
            "none of 2 files holds a line of an official log (:::MLLOG), the first is",
        ),
        (["{tmp}/LAB", "--division", "open"], "--division is for logs and folders of runs"),
        (["{tmp}/ORG"], "ORG holds no mllog.txt and no result_*.txt; give a run folder, a log, or a folder of a round"),
        ([], "the following arguments are required: PATH"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, arguments, message):
    (tmp_path / "ORG" / "results" / "box" / "strong").mkdir(parents=True)
    (tmp_path / "LAB" / "results" / "box" / "strong" / "deepcam").mkdir(parents=True)
    shutil.copy(PASSES, tmp_path / "LAB" / "results" / "box" / "strong" / "deepcam" / "result_0.txt")
    for name in ("hello.txt", "LICENSE"):
        (tmp_path / name).write_text("hello")
    assert main(["check", *(argument.format(tmp=tmp_path) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_importing_the_commands_imports_nothing_heavy():
    code = """if True:
    import sys
    from hpcbench.cli import check, doctor
    print(sorted({"torch", "numpy", "pandas", "mlperf_logging", "rich", "psutil"} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
