"""Shells complete command lines: each is asked as it asks itself, with the script that the command prints."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.application import find_application
from hpcbench.batch.site import known_sites
from hpcbench.cli.arguments import Parser
from hpcbench.cli.commands import COMMANDS, command
from hpcbench.cli.completers import NAMES, key_of, parser_of, setting_values
from hpcbench.cli.completion import SHELLS
from hpcbench.cli.main import main
from hpcbench.config.resolve import config_class, known_keys
from hpcbench.config.schema import RunConfig
from tests.hpcbench_program import environment_with_hpcbench
from tests.loaded_modules import loaded

ROOT = Path(__file__).parents[3]
ASK = """
set -eu
eval "$(hpcbench completion bash)"
name=$(complete -p hpcbench | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
    "$name" hpcbench || true
    echo "${COMPREPLY[@]-}"
done
"""
"""Bash calls the function that the script registered, as it does for the tab key."""


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that has ``hpcbench`` on its path, and nothing of its user's."""
    more = {"TERM": "dumb", "LC_ALL": "C.UTF-8", "COLUMNS": "400", "HPCBENCH_SITES": str(tmp_path / "sites")}
    return environment_with_hpcbench(tmp_path) | more


def answers(lines: list[str], shell: dict[str, str], folder: Path) -> list[str]:
    """What bash gets for each line with the cursor at its end."""
    text = "\n".join([*lines, ""])
    done = subprocess.run(
        ["bash", "-c", ASK], input=text, env=shell, cwd=folder, text=True, capture_output=True, check=True
    )
    assert done.stderr == ""
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_bash_gets_commands_subcommands_applications_and_presets(shell: dict[str, str], tmp_path: Path) -> None:
    found = answers(
        ["hpcbench st", "hpcbench study s", "hpcbench train c", "hpcbench train cosmoflow --preset ",
         "hpcbench train deepcam --optim.name lam", "hpcbench train cosmoflow --resume-"], shell, tmp_path
    )  # fmt: skip
    presets = " ".join(find_application("cosmoflow").presets())
    assert found == ["stage study", "strong status", "cosmoflow", presets, "lamb", "--resume-or-start"]


MORE = {
    "hpcbench submit --preset laptop deep": "deepcam",
    "hpcbench submit cosmoflow --site perl": "perlmutter-gpu",
    "hpcbench study strong cosmoflow --site front": "frontier",
    "hpcbench sites fug": "fugaku",
    "hpcbench predict cosmoflow --machine sel": "selene",
    "hpcbench campaign show es": "esif-hpc-4",
    "hpcbench train --preset mlperf-204": "mlperf-2048",
    "hpcbench train --optim.lr 0.1 cosm": "cosmoflow",
    "hpcbench train --train.compile cosm": "cosmoflow",
    "hpcbench train cosmoflow --optim.nest": "--optim.nesterov",
    "hpcbench train cosmoflow --model.kernel_size=": "2 3",
    "hpcbench train cosmoflow --staging.placement ": "replicate shard",
    "hpcbench study status --optim.l": "",
    "hpcbench train cosmoflow --config set": "settings.yaml",
    "hpcbench data verify coun": "counts/",
    "hpcbench report --beside p": "published",
    "hpcbench nonsense a": "",
    "hpcbench completion f": "fish",
    "hpcbench --vers": "--version",
}
"""Lines, and what bash gets for them with the cursor at their ends."""


@pytest.mark.slow
def test_bash_gets_all_kinds_of_names(shell: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").touch()
    (tmp_path / "counts").mkdir()
    assert dict(zip(MORE, answers(list(MORE), shell, tmp_path), strict=True)) == MORE


def typed(program: list[str], lines: list[str], keys: str, expected: str, shell: dict[str, str]) -> str:
    """What a shell at a terminal shows after ``lines`` and then ``keys``, until it shows ``expected``."""
    child, terminal = pty.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.execvpe(program[0], program, shell)
        os._exit(127)
    try:
        os.write(terminal, ("\n".join([*lines, "echo rea''dy"]) + "\n").encode())
        until(terminal, "ready\r\n")
        os.write(terminal, keys.encode())
        return until(terminal, expected)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def until(terminal: int, expected: str) -> str:
    """What a terminal shows until it shows ``expected``, or for 40 s."""
    shown, end = "", time.monotonic() + 40
    while expected not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "before"),
    [
        (["bash", "--norc", "--noprofile", "-i"], ["bind 'set enable-bracketed-paste off'"]),
        (["zsh", "-f", "-i"], ["autoload -Uz compinit", "compinit -u -D"]),
    ],
    ids=["bash", "zsh"],
)
def test_the_tab_key_completes_at_a_terminal(program: list[str], before: list[str], shell: dict[str, str]) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"needs the shell {program[0]}")
    lines = [*before, f'eval "$(hpcbench completion {program[0]})"']
    assert "cosmoflow" in typed(program, lines, "hpcbench train cosm\t", "cosmoflow", shell)
    assert "reference-512" in typed(program, lines, "hpcbench train cosmoflow --preset reference-5\t", "-512", shell)


@pytest.mark.slow
def test_fish_gets_names_and_what_they_are(shell: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs the shell fish")
    text = "hpcbench completion fish | source\ncomplete -C 'hpcbench st'\ncomplete -C 'hpcbench submit --site perl'\n"
    done = subprocess.run(["fish", "-c", text], env=shell, cwd=tmp_path, text=True, capture_output=True, check=True)
    assert done.stdout.splitlines() == [
        f"stage\t{COMMANDS['stage']}", f"study\t{COMMANDS['study']}", "perlmutter-gpu",
    ]  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
def test_a_script_is_of_its_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", name]) == 0
    text = capsys.readouterr().out
    assert "complete --command hpcbench" in text if name == "fish" else "#compdef hpcbench" in text
    if shutil.which(name) is not None:
        subprocess.run([name, "-n"], input=text, text=True, check=True)


def test_an_unknown_shell_and_a_missing_library_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["completion", "ksh"]) == 2
    assert "invalid choice: 'ksh'" in capsys.readouterr().err
    for name in ("argcomplete", "argcomplete.shell_integration"):  # another test may have imported it
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["completion", "bash"]) == 2
    said = "hpcbench: error: completion needs argcomplete, which is missing: pip install argcomplete\n"
    assert capsys.readouterr().err == said


def test_every_argument_that_has_names_is_one_of_a_command() -> None:
    def keys(parser: Parser) -> set[str]:
        own = {key_of(parser, action) for action in parser._actions}
        return own.union(*(keys(each) for each in parser.subcommands.values()))

    known = {f"--{key}" for key, _ in known_keys(RunConfig)}
    for name in COMMANDS:
        parser = Parser(f"hpcbench {name}", "")
        command(name).add_arguments(parser)
        known |= keys(parser)
    assert set(NAMES) - known == set()


def test_the_settings_are_those_of_the_application_with_the_words_of_each() -> None:
    kind = config_class(find_application("cosmoflow"))
    values = dict(setting_values(kind))
    assert set(values) == {key for key, _ in known_keys(kind)} - {"preset"}
    assert values["staging.verify"] == ("none", "transfer", "reread")
    assert values["model.kernel_size"] == ("2", "3")
    assert values["train.compile"] == ("true", "false")
    assert values["optim.lr"] == ()


def test_names_are_of_the_application_that_the_line_has() -> None:
    assert set(NAMES["--preset"](["hpcbench", "train", "deepcam"])) == set(find_application("deepcam").presets())
    both = {name for each in ("cosmoflow", "deepcam") for name in find_application(each).presets()}
    assert set(NAMES["--preset"](["hpcbench", "train"])) >= both
    assert set(NAMES["--site"]([])) == set(known_sites())


HEAVY = ("torch", "numpy", "pandas", "lightning_fabric", "matplotlib", "h5py", "mpi4py")


def test_completing_loads_nothing_heavy_and_only_the_command_of_the_line() -> None:
    code = (
        "from hpcbench.cli.completers import NAMES, parser_of\n"
        "words = ['hpcbench', 'train', 'cosmoflow']\nparser_of(words)\nlist(NAMES['--preset'](words))"
    )
    assert loaded(code, (*HEAVY, "hpcbench.cli.study", "hpcbench.cli.submit")) == []


def test_the_line_decides_which_commands_have_options() -> None:
    parser = parser_of(["hpcbench", "train", "cosmoflow"])
    (group,) = [action for action in parser._actions if isinstance(action.choices, dict)]
    assert isinstance(group.choices, dict)
    assert list(group.choices) == ["train"]
    assert {"--run-dir", "--model.kernel_size"} <= set(group.choices["train"].options())
