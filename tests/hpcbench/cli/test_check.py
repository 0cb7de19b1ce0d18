"""``hpcbench check`` on published logs: its table, its exit codes, its errors."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.measure.mllog import RunLog
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary

LOGS = Path(__file__).parents[2] / "data" / "logs"
PASSES, LACKS_SEED, FAILS = (
    LOGS / f"{name}.txt" for name in ("v1.0-nvidia-deepcam", "v1.0-nvidia-cosmoflow", "v0.7-fujitsu-deepcam")
)


def cells(output: str) -> list[list[str]]:
    """Rows of the table."""
    table = output.split("\n\n", maxsplit=1)[0].splitlines()
    return [line.split() for line in table[2:]]


def test_a_log_that_passes_ends_with_0(capsys):
    assert main(["check", str(PASSES)]) == 0
    assert cells(capsys.readouterr().out)[0][1:] == ["deepcam", "closed", "3.0.0", "pass", "pass", "pass"]


def test_one_log_that_fails_ends_with_1_and_says_why(capsys):
    assert main(["check", str(PASSES), str(FAILS), "--ruleset", "1.0.0"]) == 1
    output = capsys.readouterr().out
    assert [row[-3:] for row in cells(output)] == [["pass", "pass", "pass"], ["fail", "pass", "FAIL"]]
    assert "official checker: Required EXACTLY_ONE occurrence of 'number_of_nodes' but found 0" in output


def test_what_lies_beyond_the_official_checker_is_told_apart(capsys):
    assert main(["check", str(LACKS_SEED)]) == 1
    output = capsys.readouterr().out
    assert cells(output)[0][-4:] == ["pass", "1", "fault", "FAIL"]
    assert "beyond the official checker: no seed is logged" in " ".join(output.split())


def test_another_division_can_be_asked_for(capsys):
    assert main(["check", str(LACKS_SEED), "--division", "open"]) == 0
    assert cells(capsys.readouterr().out)[0][2] == "open"


def test_a_folder_of_published_results_is_checked_whole(tmp_path, capsys):
    for number in range(3):
        shutil.copy(PASSES, tmp_path / f"result_{number}.txt")
    assert main(["check", str(tmp_path)]) == 0
    assert len(cells(capsys.readouterr().out)) == 3


def test_a_run_folder_is_checked_under_its_own_ruleset(tmp_path, capsys):
    folder = RunFolder.create(tmp_path / "run")
    shutil.copy(PASSES, folder.mllog)
    folder.write_summary(Summary("deepcam", "t", "mlperf", ruleset="2.0.0"))
    assert main(["check", str(folder.path)]) == 0
    assert cells(capsys.readouterr().out)[0][:4] == ["run", "deepcam", "closed", "2.0.0"]


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
        (["{tmp}/none"], "none does not exist; give a run folder or a log file"),
        (["{tmp}"], "holds no mllog.txt and no result_*.txt"),
        ([str(PASSES), "--ruleset", "0.7.0"], "ruleset 0.7.0 is not one of 1.0.0, 2.0.0, 3.0.0"),
        ([str(PASSES), "--division", "shut"], "division 'shut' is neither open nor closed"),
        ([], "the following arguments are required: RUN_DIR"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, arguments, message):
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
