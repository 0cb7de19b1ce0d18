"""The front door: quick help, one-line errors with the nearest right word, and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from hpcbench import __version__
from hpcbench.cli import apps
from hpcbench.cli.commands import COMMANDS
from hpcbench.cli.main import main
from hpcbench.exits import Aborted
from staging.errors import InputError

HEAVY = (
    "torch", "numpy", "pandas", "lightning", "lightning_fabric", "matplotlib", "h5py", "mpi4py", "argcomplete",
)  # fmt: skip

LOADED = f"""
import json, sys
from hpcbench.cli.commands import COMMANDS
from hpcbench.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(set(sys.modules) & set({HEAVY}))]))
"""


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["data", "--help"], ["demo", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]


def test_the_list_of_commands_loads_none_of_them() -> None:
    """That would be most of the time that the list takes."""
    program = """
import json, sys
from hpcbench.cli.main import main
main(["--help"])
slow = ("hpcbench.cli.", "hpcbench.config.", "hpcbench.study.", "yaml", "importlib.metadata")
print(json.dumps(sorted(name for name in sys.modules if name.startswith(slow))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == ["hpcbench.cli.commands", "hpcbench.cli.main"]


def test_help_names_every_command_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^  {name} +{re.escape(COMMANDS[name])}$", text, re.MULTILINE)
    assert "Exit codes: 0 done, 1 aborted, 2 bad input, 3 target not reached, 128+n ended by signal n;" in text
    assert "of a job, 4 if another job holds its run folder (a training by hand is refused with 2)." in text
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: hpcbench {name}")
    assert re.search(rf"^  (mpiexec -n \d+ )?hpcbench {name}\b", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 100


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hpcbench {__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian", "cosmoflow"], "unknown command 'trian'; did you mean 'train'?"),
        (["zzz"], f"unknown command 'zzz'; none of the {len(COMMANDS)} known is like it"),
        (["train", "cosmoflow", "--sede", "3"], "unknown argument '--sede'; did you mean '--seed'?"),
        (["train", "cosmoflow", "--presets", "smoke"], "unknown argument '--presets'; did you mean '--preset'?"),
        (["doctor", "extra"], "unknown argument 'extra'"),
        (["train"], "the following arguments are required: APP; see hpcbench train --help"),
        (["train", "cosmoflow", "--seed", "many"], "argument --seed: invalid int value: 'many'; see hpcbench train"),
        (["data", "simulat", "cosmoflow"], "hpcbench data: unknown command 'simulat'; did you mean 'simulate'?"),
        (["train", "cosmoflw"], "unknown application 'cosmoflw'; did you mean 'cosmoflow'?"),
        (["train", "deepcam", "--preset", "lapto"], "deepcam has no preset 'lapto'; did you mean 'laptop'?"),
        (["train", "deepcam", "--optm.lr", "1"], "unknown key 'optm.lr'; did you mean 'optim.lr'?"),
    ],
)
def test_bad_words_get_one_line_and_exit_code_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("hpcbench: error: ")
    assert captured.err.count("\n") == 1
    assert expected in captured.err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("the file\nis cut short"), 2, "hpcbench: error: the file is cut short\n"),
        (Aborted("the loss is nan"), 1, "hpcbench: aborted: the loss is nan\n"),
        (Aborted("signal SIGTERM", 143), 143, "hpcbench: aborted: signal SIGTERM\n"),
        (KeyboardInterrupt(), 130, "hpcbench: interrupted\n"),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr(apps, "run", fail)
    assert main(["apps"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_what_all_ranks_meet_is_said_by_the_first(
    rank: str, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "cosmoflow", "--sede", "3"]) == 2
    assert capsys.readouterr().err.count("\n") == lines


def test_applications_and_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apps"]) == 0
    text = capsys.readouterr().out
    for name in ("cosmoflow", "deepcam"):
        assert re.search(rf"^{name} +\S", text, re.MULTILINE)
    assert len(re.findall(r"^  (smoke|laptop) +\S", text, re.MULTILINE)) >= 4


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """As in ``hpcbench train cosmoflow --list | head -1``."""
    program = "import sys; from hpcbench.cli.main import main; sys.exit(main(['train', 'cosmoflow', '--list']))"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert b"Traceback" not in errors
