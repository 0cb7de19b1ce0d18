"""``hpcbench bundle``: what an archive holds, and what is refused, with a package index of tiny wheels."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.version import Version

import hpcbench
from hpcbench.bundle import archive
from hpcbench.bundle.archive import Bundle
from hpcbench.bundle.resolve import explain
from hpcbench.bundle.source import find_source
from hpcbench.bundle.target import Target
from hpcbench.bundle.wheels import Wheel
from hpcbench.cli.main import main
from staging.errors import InputError
from tests.hpcbench.bundle.tiny_index import HERE


def test_an_archive_holds_what_the_target_needs_pinned_and_nothing_of_the_site(
    tiny_bundle: tuple[Bundle, Path],
) -> None:
    bundle, top = tiny_bundle
    names = {"client", "compiler", "fonts", "hpcbench-ml", "mpi4py", "packaging", "plotter"}
    names |= {"backport"} if HERE == "3.11" else {"forward"} if HERE == "3.13" else set()
    names |= {"arm-only"} if platform.machine() == "aarch64" else set()
    pinned = (top / "pinned.txt").read_text(encoding="utf-8").splitlines()
    assert {line.partition("==")[0] for line in pinned} == names == {wheel.name for wheel in bundle.wheels}
    assert "plotter==1.4 " in "\n".join(pinned), "2.0 wants a newer numpy than the lowest"
    hashes = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (top / "wheels").iterdir()}
    assert {re.fullmatch(r"\S+==\S+ --hash=sha256:(\w{64})", line)[1] for line in pinned} == hashes  # type: ignore[index]
    assert bundle.of_site == {"torch": ">=2.6", "numpy": "<2.7,>=1.26"}


def test_every_file_but_the_checksums_has_one(tiny_bundle: tuple[Bundle, Path]) -> None:
    _, top = tiny_bundle
    listed = dict(reversed(line.split("  ")) for line in (top / "SHA256SUMS").read_text().splitlines())
    files = {path.relative_to(top).as_posix(): path for path in top.rglob("*") if path.is_file()}
    assert listed == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if name != "SHA256SUMS"
    }


def test_the_source_is_packed_without_what_lies_beside_it(tiny_bundle: tuple[Bundle, Path]) -> None:
    _, top = tiny_bundle
    with tarfile.open(top / "source" / "hpcbench-ml-9.1.tar.gz") as packed:
        entries = packed.getmembers()
    assert {"hpcbench-ml-9.1/pyproject.toml", "hpcbench-ml-9.1/hpcbench/tiny_backend.py"} <= {e.name for e in entries}
    assert not [entry.name for entry in entries if "runs" in entry.name]
    assert {(entry.uid, entry.uname) for entry in entries} == {(0, "root")}


@pytest.mark.slow
def test_what_only_another_target_needs_is_found(tiny_source: Path, tmp_path: Path) -> None:
    """pip reads markers for the Python that it runs on, so that it overlooks these."""
    out = tmp_path / "arm.tar.gz"
    words = ["bundle", str(out), "--source", str(tiny_source), "--python", "3.13", "--arch", "aarch64"]
    assert main(words) == 0
    with tarfile.open(out) as packed:
        wheels = {Path(name).name for name in packed.getnames() if name.endswith(".whl")}
        facts = json.load(packed.extractfile("hpcbench-ml-9.1-cp313-aarch64/bundle.json"))  # type: ignore[arg-type]
    assert {"forward-1.0-py3-none-any.whl", "arm_only-1.0-py3-none-any.whl"} <= wheels
    assert "backport-1.0-py3-none-any.whl" not in wheels
    assert (facts["python"], facts["architecture"]) == ("3.13", "aarch64")


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that refuses a command."""
    assert main(["bundle", *words]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("hpcbench: error: ")
    return line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["there.tar.gz"], "OUT (there.tar.gz) exists; remove it"),
        (["no/where.tar.gz"], "lies in no folder that exists"),
        (["/proc/b.tar.gz"], "OUT (/proc/b.tar.gz): cannot write there (No such file or directory); choose another"),
        (["bundle.zip"], "must be a file name that ends with .tar.gz"),
        (["b.tar.gz", "--extra", "local"], "--extra local brings torch or MPI, which a bundle leaves to the site"),
        (["b.tar.gz", "--extra", "fsat"], "--extra fsat is no extra of hpcbench-ml; choose from fast, lost"),
        (["b.tar.gz", "--numpy", "1.20"], "--numpy 1.20 is older than 1.26"),
        (["b.tar.gz", "--numpy", "new"], "--numpy new is no version"),
        (["b.tar.gz", "--python", "3.10"], "invalid choice: '3.10'"),
        (["b.tar.gz", "--arch", "ppc64le"], "invalid choice: 'ppc64le'"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line_before_anything_is_fetched(
    words: list[str], expected: str, tiny_source: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("there.tar.gz").write_text("mine")
    assert expected in refused([*words, "--source", str(tiny_source)], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["there.tar.gz"]
    assert Path("there.tar.gz").read_text() == "mine"


def test_without_a_source_tree_there_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused([str(tmp_path / "b.tar.gz"), "--source", str(tmp_path)], capsys)
    assert "holds no pyproject.toml; name a clone of the repository with --source" in line
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "hpcbench"\n')
    assert "is not of hpcbench-ml" in refused([str(tmp_path / "b.tar.gz"), "--source", str(tmp_path)], capsys)


def test_the_source_of_an_installed_package_is_the_current_folder(
    tmp_path: Path, tiny_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpcbench, "__file__", str(tmp_path / "site-packages" / "hpcbench" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="installed without its source; this folder has no pyproject"):
        find_source(None)
    monkeypatch.chdir(tiny_source)
    assert find_source(None) == tiny_source


@pytest.mark.slow
def test_a_wheel_that_no_index_has_is_named(
    tiny_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b.tar.gz"
    line = refused([str(out), "--source", str(tiny_source), "--extra", "lost", "--python", "3.12"], capsys)
    assert "no wheel of nowhere>=3 for CPython 3.12 on " in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_index_that_does_not_answer_is_said_in_one_line(
    tiny_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    line = refused([str(tmp_path / "b.tar.gz"), "--source", str(tiny_source)], capsys)
    assert "no package index can be reached; run this where one can, or name a mirror in PIP_INDEX_URL" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("WARNING: Retrying ... NameResolutionError: Temporary failure in name resolution\nERROR: No matching "
         "distribution found for scipy", "no package index can be reached"),
        ("ERROR: No matching distribution found for h5py>=3.10; extra == 'x'", "no wheel of h5py>=3.10 for "),
        ("ERROR: ResolutionImpossible: for help visit", "pip failed for CPython 3.12 on x86_64: ResolutionImpossible"),
        ("", "pip failed for CPython 3.12 on x86_64: it said nothing"),
    ],
)  # fmt: skip
def test_what_pip_says_becomes_one_line(output: str, expected: str) -> None:
    assert explain(output, str(Target("3.12", "x86_64"))).startswith(expected)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder to pack."""
    (tmp_path / "top" / "wheels").mkdir(parents=True)
    (tmp_path / "top" / "wheels" / "plotter.whl").write_bytes(os.urandom(9000))
    return tmp_path / "top"


def test_a_bundle_above_the_largest_size_is_refused(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST", 5000)
    wheel = Wheel(Path("plotter.whl"), "plotter", Version("1.4"), ())
    with pytest.raises(InputError, match=r"has 0 MB, and at most 0 MB are allowed.*\(largest: plotter 0 MB\)"):
        archive.write_archive(top, top.parent / "b.tar.gz", (wheel,))
    assert list(top.parent.iterdir()) == [top]


def test_the_largest_size_is_that_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "installing.md").read_text(encoding="utf-8")
    assert f"refused above {archive.LARGEST / 1e6:.0f} MB" in page


def test_a_name_that_another_takes_meanwhile_is_not_overwritten(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = top.parent / "b.tar.gz"
    monkeypatch.setattr(archive, "sync_file", lambda part: out.write_text("faster"))
    with pytest.raises(InputError, match=r"b\.tar\.gz\) exists; remove it, or choose another name"):
        archive.write_archive(top, out, ())
    assert out.read_text() == "faster"
    assert sorted(path.name for path in top.parent.iterdir()) == ["b.tar.gz", "top"]


KILLED = """
import os, signal, sys
from pathlib import Path
from hpcbench.bundle import archive
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background ignores it
setattr(archive, sys.argv[1], lambda *words: os.kill(os.getpid(), int(sys.argv[2])))
archive.write_archive(Path(sys.argv[3]), Path(sys.argv[4]), ())
"""


@pytest.mark.parametrize(
    ("at", "number"), [("sha256", signal.SIGKILL), ("take_name", signal.SIGKILL), ("sync_file", signal.SIGINT)]
)
def test_one_that_is_killed_leaves_no_archive(at: str, number: signal.Signals, top: Path) -> None:
    words = [sys.executable, "-c", KILLED, at, str(int(number)), str(top), str(top.parent / "b.tar.gz")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in (-number, 1, 130), done.stderr
    left = {path.name for path in top.parent.iterdir()} - {"top"}
    assert "b.tar.gz" not in left
    assert number == signal.SIGKILL or left == set()


def test_one_that_is_asked_to_end_leaves_nothing(tiny_source: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hpcbench", "bundle", str(tmp_path / "b.tar.gz"), "--source", str(tiny_source)]
    (tmp_path / "scratch").mkdir()
    variables = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=variables)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("building hpcbench-ml-9.1 from ")
    process.terminate()
    assert process.communicate(timeout=120)[1].splitlines()[-1] == "hpcbench: aborted: signal SIGTERM"
    assert process.returncode == 143
    assert list((tmp_path / "scratch").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]
