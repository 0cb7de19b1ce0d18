"""Each command of docs/installing.md is one that its program accepts, and the recipes of containers hold together."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hpcbench.batch.site import find_site, known_sites
from hpcbench.bundle import site_install
from hpcbench.bundle.target import GLIBC
from hpcbench.cli.main import main
from tests.command_lines import FENCED
from tests.documented_commands import Command, every

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONTAINERFILE = (ROOT / "containers" / "Containerfile").read_text(encoding="utf-8")
APPTAINER = (ROOT / "containers" / "hpcbench.def").read_text(encoding="utf-8")
RECIPES = pytest.mark.parametrize("recipe", [CONTAINERFILE, APPTAINER], ids=["Containerfile", "hpcbench.def"])


def commands() -> list[list[str]]:
    """The words of every line in the fenced blocks of the page, without variables set before the program."""
    lines = [line for block in FENCED.finditer(PAGE) for line in block["text"].replace("\\\n", " ").splitlines()]
    found = [shlex.split(line) for line in lines if line]
    return [words[next(n for n, word in enumerate(words) if not re.match(r"[A-Z]+=", word)) :] for words in found]


def installs(command: Command) -> bool:
    """Whether a command installs with pip."""
    return "pip" in command.words and "install" in command.words


@cache
def options_of(*command: str) -> set[str]:
    """The long options in the help of a Python program."""
    done = subprocess.run([sys.executable, *command, "--help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"--[a-z][\w-]+", done.stdout))


OTHER_PROGRAMS = {
    "hpcbench": r".*",  # tests/docs/test_commands.py
    ".": r"~/hpcbench/bin/activate",
    "export": r"PYTHONPATH=(\S+):\$PYTHONPATH PATH=\1/bin:\$PATH",
    "module": r"load \w+",
    "tar": r"-xzf hpcbench\.tar\.gz",
    "conda": r"(create --name \w+ python=3\.1[123]|activate \w+|install --channel conda-forge [\w ]+)",
    "apptainer": r"build hpcbench\.sif containers/hpcbench\.def",
    "podman": r"(build --file containers/Containerfile --tag hpcbench \.|run --rm hpcbench hpcbench doctor)",
}
"""What is left of the programs that are not here, after their name."""


def test_every_command_is_of_a_program_that_this_test_knows() -> None:
    rest = [words for words in commands() if words[0] not in ("python", "python3", "sh")]
    wrong = [words for words in rest if not re.fullmatch(OTHER_PROGRAMS.get(words[0], "(?!)"), " ".join(words[1:]))]
    assert wrong == []
    assert {words[0] for words in commands()} == {"python", "python3", "sh", *OTHER_PROGRAMS}


def test_pip_knows_its_options_and_the_project_its_extras() -> None:
    pytest.importorskip("pip")
    known = options_of("-m", "pip", "install")
    installs = [words[4:] for words in commands() if words[1:4] == ["-m", "pip", "install"]]
    assert len(installs) >= 6
    for words in installs:
        assert {word for word in words if word.startswith("--")} <= known
        extras = re.findall(r"^\.\[([\w,]+)\]$", words[-1])
        assert set(",".join(extras).split(",")) - {""} <= set(PROJECT["optional-dependencies"])
        assert words[-1] in (".", "mpi4py") or extras
    table = re.search(r"\| extra \| brings \|\n\|---.*\n((?:\|.*\n)+)", PAGE)
    assert table is not None
    assert set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table[1].splitlines()))) == set(
        PROJECT["optional-dependencies"]
    )


@pytest.mark.parametrize("source", sorted(source for source, found in every().items() if any(map(installs, found))))
def test_what_any_page_installs_is_there(source: str) -> None:
    pytest.importorskip("pip")
    known = options_of("-m", "pip", "install")
    for command in filter(installs, every()[source]):
        words = command.words[command.words.index("install") + 1 :]
        assert {word for word in words if word.startswith("--")} <= known, command
        extras = re.findall(r"^(?:\.|hpcbench-ml)\[([\w,]+)\]$", words[-1])
        assert set(",".join(extras).split(",")) - {""} <= set(PROJECT["optional-dependencies"]), command


def test_what_is_installed_is_listed() -> None:
    pytest.importorskip("pip")
    done = subprocess.run([sys.executable, "-m", "pip", "list", "--format=freeze"], capture_output=True, check=True)
    assert b"numpy==" in done.stdout


def test_venv_knows_its_options() -> None:
    made = [words[3:] for words in commands() if words[1:3] == ["-m", "venv"]]
    assert made == [["~/hpcbench"], ["--system-site-packages", "~/hpcbench"]]
    assert "--system-site-packages" in options_of("-m", "venv")


@pytest.mark.slow
def test_the_constraints_name_what_is_there() -> None:
    (words,) = [words for words in commands() if words[1] == "-c"]
    assert words[3:] == [">", "site.txt"]
    done = subprocess.run([sys.executable, *words[1:3]], capture_output=True, text=True, check=True)
    torch, numpy = map(Requirement, done.stdout.split())
    assert (torch.name, numpy.name) == ("torch", "numpy")
    assert str(torch.specifier).startswith("==")


def test_the_install_script_knows_its_options() -> None:
    runs = [words for words in commands() if words[0] == "sh"]
    assert [words[1] for words in runs] == ["hpcbench-ml-*/install.sh"] * 2
    parsed = [site_install.parse(words[2:]) for words in runs]
    assert [(args.check, args.venv) for args in parsed] == [(True, None), (False, "~/hpcbench")]
    for kind in re.findall(r"^\| `--(\w+) DIR` \|", PAGE, re.MULTILINE):
        assert getattr(site_install.parse([f"--{kind}", "x", "--python", "python3"]), kind) == "x"


def test_versions_are_those_of_the_project() -> None:
    needs = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}
    page = " ".join(PAGE.split())
    torch, numpy = re.search(r"PyTorch \((\S+) or newer\), numpy \((\S+) or newer\)", page).groups()  # type: ignore[union-attr]
    (mpi4py,) = re.findall(r"mpi4py is the site's own where it has (\S+) or newer", page)
    assert needs["torch"] == SpecifierSet(f">={torch}")
    assert needs["numpy"] == SpecifierSet(f">={numpy}")
    assert needs["mpi4py"] == SpecifierSet(f">={mpi4py}")
    assert f"glibc {GLIBC[0]}.{GLIBC[1]}" in page


def test_what_an_image_binds_is_said_of_every_site_that_takes_one() -> None:
    sites = {name: find_site(name, {}) for name in known_sites({"HPCBENCH_SITES": "/nowhere"})}
    table = dict(re.findall(r"^\| `([\w-]+)` \| `([^`]+)`", PAGE, re.MULTILINE))
    words = {name: site.container.removesuffix(" {image}") for name, site in sites.items() if site.container}
    assert {name: text for name, text in table.items() if name in sites} == words
    assert not [name for name, text in words.items() if "bind" in text], "then the page must say so"
    said = {"frontier": "/mnt/bb/$USER", "juwels-booster": "/dev/shm", "lumi-g": "/tmp"}
    assert {name: sites[name].local_path for name in words} == said


def test_a_job_in_an_image_runs_every_command_in_it_and_binds_what_it_was_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (words,) = [words[1:] for words in commands() if words[:2] == ["hpcbench", "submit"]]
    assert main([*words, "--dry-run"]) == 0
    script = capsys.readouterr().out
    assert "hpcbench=(apptainer exec /lustre/orion/abc123/hpcbench.sif hpcbench)" in script
    assert 'export APPTAINER_BIND="/lustre/orion,/mnt/bb/${USER:-}"' in script
    assert not re.findall(r"^[^#\n]*\bpython", script, re.MULTILINE)


@RECIPES
def test_a_recipe_says_that_it_is_unbuilt(recipe: str) -> None:
    assert recipe.startswith("# UNBUILT: ")
    assert "**They are unbuilt**" in PAGE


@RECIPES
def test_a_recipe_has_the_versions_and_extras_of_the_project(recipe: str) -> None:
    (python,) = re.findall(r"python:(3\.\d+)-slim-bookworm$", recipe, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    (torch,) = re.findall(r'"(torch[^"]+)"', recipe)
    assert torch in PROJECT["optional-dependencies"]["local"]
    (extras,) = re.findall(r'"/opt/hpcbench\[([\w,]+)\]"', recipe)
    assert {"local"} < set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


@RECIPES
def test_the_shell_of_a_recipe_parses(recipe: str) -> None:
    runs = re.findall(r"^RUN ((?:.*\\\n)*.*)$", recipe, re.MULTILINE)
    sections = re.findall(r"^%(?:setup|post|test|runscript)\n((?:    .*\n|\n)+)", recipe, re.MULTILINE)
    assert len(runs) + len(sections) >= 3
    for script in [*runs, *sections]:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


COPIED = {"LICENSE", "README.md", "pyproject.toml", "apps", "hpcbench", "staging"}
"""What the wheel is built from."""


def test_the_containerfile_parses_and_copies_what_the_wheel_is_built_from() -> None:
    lines = [line for line in CONTAINERFILE.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert [line.split()[0] for line in lines] == ["FROM", "ARG", "RUN", "RUN", *["COPY"] * 4, "RUN", "CMD"]
    copies = [line.split()[1:] for line in lines if line.startswith("COPY")]
    assert {source for *sources, _ in copies for source in sources} == COPIED
    assert all((ROOT / source).exists() for source in COPIED)
    assert copies[0][-1] == "/opt/hpcbench/"
    assert [(source, target) for source, target in copies[1:]] == [
        (name, f"/opt/hpcbench/{name}") for name in ("apps", "hpcbench", "staging")
    ]


def test_the_definition_file_parses_and_copies_what_the_wheel_is_built_from() -> None:
    head, *sections = re.split(r"^%", APPTAINER, flags=re.MULTILINE)
    assert re.findall(r"^(\w+): (\S+)$", head, re.MULTILINE) == [
        ("Bootstrap", "docker"),
        ("From", "python:3.12-slim-bookworm"),
    ]
    named = {text.partition("\n")[0]: text.partition("\n")[2] for text in sections}
    assert list(named) == ["arguments", "setup", "files", "post", "test", "runscript"]
    assert set(re.findall(r"\{\{ (\w+) \}\}", named["post"])) == set(re.findall(r"(\w+)=", named["arguments"]))
    pairs = [line.split() for line in named["files"].splitlines() if line]
    assert {source for source, _ in pairs} == COPIED
    assert all(target == f"/opt/hpcbench/{source}" for source, target in pairs)
