"""What ``install.sh`` of a bundle does at a site, run as a user runs it, with tiny packages for the real ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.bundle import site_install
from hpcbench.bundle.archive import Bundle, install_script
from hpcbench.bundle.target import GLIBC, Target

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of the modules that a site has: torch and numpy, in its own builds."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "torch.py").write_text('__version__ = "2.6.0a0+ecf3bae40a.nv25.1"\n', encoding="utf-8")
    (folder / "numpy.py").write_text('__version__ = "1.26.4"\n', encoding="utf-8")
    (folder / "mpi4py.py").write_text('__version__ = "3.1.4"\n', encoding="utf-8")
    return folder


@pytest.fixture
def run(tiny_bundle: tuple[Bundle, Path], site: Path, tmp_path: Path) -> Run:
    """Runs install.sh with the site's modules, and settings of pip that would lead it astray."""
    _, top = tiny_bundle

    def run(*words: object, script: Path = top / "install.sh") -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "PYTHONPATH": str(site), "PIP_USER": "1", "PIP_TARGET": str(tmp_path / "astray")}
        command = ["sh", str(script), *map(str, words)]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd=tmp_path)

    return run


def text(path: Path) -> str:
    """What a file holds."""
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_installs_beside_what_the_site_has(run: Run, site: Path, tmp_path: Path) -> None:
    done = run("--target", "my packages", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert "torch 2.6.0a0+ecf3bae40a.nv25.1 of the site: " in done.stdout
    assert "mpi4py 4.1.2 of the bundle: that of the site, 3.1.4, is not >=4.0" in done.stdout
    assert "hpcbench-ml 9.1 among them" in done.stdout
    installed = {path.name for path in (tmp_path / "my packages").iterdir()}
    assert {"hpcbench", "plotter.py", "compiler.py", "mpi4py.py"} <= installed
    assert not {"torch.py", "numpy.py"} & installed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my packages", "site"]
    (use,) = [line for line in done.stdout.splitlines() if line.startswith("use it:")]
    script = f"{use.removeprefix('use it:')}; {sys.executable} -c 'import torch, plotter, mpi4py; print(torch, mpi4py)'"
    shown = subprocess.run(["sh", "-c", script], env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"]},
                           capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert str(site / "torch.py") in shown
    assert str(tmp_path / "my packages" / "mpi4py.py") in shown


def test_mpi4py_is_the_sites_own_where_it_is_new_enough_and_what_hides_a_wheel_is_named(
    run: Run, site: Path, tmp_path: Path
) -> None:
    (site / "mpi4py.py").write_text('__version__ = "4.0.1"\n', encoding="utf-8")
    (site / "plotter-0.9.dist-info").mkdir()
    (site / "plotter-0.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plotter\nVersion: 0.9\n")
    done = run("--venv", "environment", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert "mpi4py 4.0.1 of the site: " in done.stdout
    assert "note: plotter 0.9 of the site comes before 1.4 of the bundle (PYTHONPATH)" in done.stdout
    packages = next((tmp_path / "environment" / "lib").glob("python*/site-packages"))
    assert (packages / "plotter.py").exists()
    assert not (packages / "mpi4py.py").exists()


@pytest.mark.parametrize(
    ("module", "content", "expected"),
    [
        ("torch", '__version__ = "2.5.1"', "torch 2.5.1 of the site"),
        ("torch", "raise OSError('libcuda.so.1: not found')", "cannot import torch (OSError: libcuda.so.1: not found)"),
        ("numpy", '__version__ = "2.7.1"', "is not <2.7,>=1.26; load a module with another one, or make a bundle with "
         "--numpy 2.7.1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line_and_nothing_is_installed(
    module: str, content: str, expected: str, run: Run, site: Path, tmp_path: Path
) -> None:
    (site / f"{module}.py").write_text(content + "\n", encoding="utf-8")
    done = run("--venv", "environment", "--python", sys.executable)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("install.sh: error: ")
    assert expected in line
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_damaged_file_is_named_before_anything_runs(
    run: Run, tiny_bundle: tuple[Bundle, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_bundle[1], copy)
    wheel = next((copy / "wheels").glob("plotter*"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    done = run("--check", "--python", sys.executable, script=copy / "install.sh")
    assert done.returncode == 2
    assert done.stderr == (
        f"install.sh: error: wheels/{wheel.name}: FAILED: the archive is damaged; copy and unpack it again\n"
    )
    wheel.unlink()
    assert wheel.name in run("--check", "--python", sys.executable, script=copy / "install.sh").stderr


def test_another_python_is_refused_by_the_shell(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "python3.6"
    old.write_text("#!/bin/sh\necho 3.6\n", encoding="utf-8")
    old.chmod(0o755)
    done = run("--venv", "x", f"--python={old}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{old} is Python 3.6, and this bundle is for " in line
    assert "no program /no/python; load the site's Python" in run("--check", "--python", "/no/python").stderr


def test_a_folder_that_holds_something_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    done = run("--prefix", "mine", "--python", sys.executable)
    assert done.returncode == 2
    assert done.stderr == (
        f"install.sh: error: {tmp_path}/mine exists and is not empty; choose another folder, or remove it\n"
    )
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_an_installation_that_fails_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_bundle: tuple[Bundle, Path]
) -> None:
    def fail(*words: object) -> None:
        raise site_install.InstallError("the disk is full")

    monkeypatch.setattr(site_install, "run_pip", fail)
    found = site_install.Found([], [], [])
    with pytest.raises(site_install.InstallError, match="the disk is full"):
        site_install.install("venv", tmp_path / "apps" / "hpcbench" / "environment", {}, found)
    assert not (tmp_path / "apps").exists(), "nor the folders above that were made for it"
    (tmp_path / "apps").mkdir()
    with pytest.raises(site_install.InstallError, match="the disk is full"):
        site_install.install("target", tmp_path / "apps" / "hpcbench", {}, found)
    assert list(tmp_path.iterdir()) == [tmp_path / "apps"]


SLOW_PIP = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run below nohup
from pathlib import Path
from hpcbench.bundle import site_install
def slow(python, kind, folder, absent, facts):
    (folder / "half").touch()
    print("in pip", flush=True)
    time.sleep(60)
site_install.run_pip = slow
site_install.install("target", Path(sys.argv[1]), {}, site_install.Found([], [], []))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_told_to_end_leaves_no_folder(number: signal.Signals, tmp_path: Path) -> None:
    """A terminal that is closed sends SIGHUP."""
    words = [sys.executable, "-c", SLOW_PIP, str(tmp_path / "apps" / "hpcbench")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in pip\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("machine", lambda: "ppc64le", "this machine is ppc64le, and the bundle is for x86_64; make one with --arch"),
        ("libc_ver", lambda: ("glibc", "2.17"), "the C library is glibc 2.17, and the wheels need glibc 2.28 or newer"),
        ("libc_ver", lambda: ("", ""), "the C library is unknown, and the wheels need"),
        ("python_implementation", lambda: "PyPy", "is no CPython with its global lock"),
    ],
)
def test_a_machine_that_the_wheels_are_not_for(
    name: str, value: Callable[[], object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_install.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(site_install.platform, "libc_ver", lambda: ("glibc", "2.34"))
    facts = {"architecture": "x86_64", "glibc": list(GLIBC)}
    assert [each for each in site_install.machine_problems(facts) if "no pip" not in each] == []
    monkeypatch.setattr(site_install.platform, name, value)
    assert expected in site_install.machine_problems(facts)[0]


def test_the_script_is_plain_shell() -> None:
    script = install_script("0.1.0", Target("3.12", "aarch64"))
    assert "@" not in script.replace('"$@"', "")
    for shell in ("sh", "dash", "busybox sh"):
        words = shell.split()
        if shutil.which(words[0]):
            subprocess.run([*words, "-n"], input=script, text=True, check=True)


def test_how_to_use_it_is_quoted_for_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    site_install.say_how_to_use(Path("/a b"), "")
    assert ". '/a b/bin/activate'" in capsys.readouterr().out


@pytest.mark.parametrize("scripts", ["bin", "local/bin"])
def test_the_path_is_where_the_command_is(scripts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Debian's own Python installs a prefix below its folder ``local``."""
    (tmp_path / scripts).mkdir(parents=True)
    (tmp_path / scripts / "hpcbench").touch()
    site_install.say_how_to_use(tmp_path, "/packages")
    assert f'PATH={tmp_path / scripts}:"$PATH"\n' in capsys.readouterr().out
