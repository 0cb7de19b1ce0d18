"""Whether installed packages are those of their wheel, and a checkout that of its commit."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from hpcbench.measure.environment import environment_record
from hpcbench.measure.installation import (
    hash_of,
    installation,
    installation_words,
    is_record,
    packages_words,
    release_note,
)

FILES = {"hpcbench/__init__.py": "__version__ = '9'\n", "hpcbench/a.py": "A = 1\n", "staging/b.py": "B = 2\n",
         "apps/c.yaml": "c: 3\n"}  # fmt: skip


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A folder of installed packages, as an installer leaves it: the form of PEP 376 and PEP 427."""
    root, info = tmp_path / "site-packages", tmp_path / "site-packages/hpcbench_ml-9.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hpcbench-ml\nVersion: 9.0\n")
    lines = [f"{info.name}/METADATA,,", f"{info.name}/RECORD,,", "hpcbench/__pycache__/a.cpython-311.pyc,,"]
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    return root


def git(folder: Path, *words: str) -> None:
    """Run git as somebody."""
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True)


def test_a_wheel_as_it_was_installed(wheel: Path) -> None:
    found = installation(wheel)
    assert (found["basis"], found["unchanged"], found["files"], found["version"]) == ("RECORD", True, 4, "9.0")
    assert found["from"] == "index"
    assert installation_words(found) == "hpcbench-ml 9.0, as its wheel's RECORD (4 files)"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("hpcbench/a.py", "A = 2\n", "changed: hpcbench/a.py"), ("apps/c.yaml", "", "changed: apps/c.yaml"),
     ("staging/new.py", "", "added: staging/new.py")],
)  # fmt: skip
def test_a_wheel_that_was_edited(wheel: Path, name: str, text: str, said: str) -> None:
    (wheel / name).write_text(text)
    found = installation(wheel)
    assert (found["unchanged"], found["differing"], found["names"]) == (False, 1, [said])
    assert installation_words(found) == f"hpcbench-ml 9.0, but 1 file differs: {said}"


def test_a_file_that_is_gone_and_compiled_ones(wheel: Path) -> None:
    (wheel / "hpcbench/__pycache__").mkdir()
    (wheel / "hpcbench/__pycache__/b.py").write_text("")
    assert installation(wheel)["unchanged"], "caches are nobody's"
    (wheel / "staging/b.py").unlink()
    assert installation(wheel)["names"] == ["changed: staging/b.py"]


def test_where_a_wheel_is_from(wheel: Path) -> None:
    path = wheel / "hpcbench_ml-9.0.dist-info/direct_url.json"
    path.write_text(json.dumps({"url": "file:///home/somebody/w.whl", "archive_info": {}}))
    found = installation(wheel)
    assert found["from"] == "archive"
    assert "somebody" not in json.dumps(found)


def test_a_copy_without_a_record(tmp_path: Path) -> None:
    (tmp_path / "hpcbench").mkdir()
    found = installation(tmp_path)
    assert (found["basis"], found["unchanged"]) == (None, None)
    assert installation_words(found).startswith("nothing tells whether the installed packages")


def test_the_hash_is_that_of_installed_wheels() -> None:
    """pip wrote the RECORD of ``packaging``; the hashes here are the same."""
    files = [each for each in metadata.files("packaging") or [] if each.hash is not None and each.suffix == ".py"]
    assert len(files) > 5
    assert [str(f) for f in files if hash_of(Path(str(f.locate())), f.hash.mode) != f.hash.value] == []  # type: ignore[union-attr]


def test_a_checkout(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    git(tmp_path, "tag", "v9.0")
    found = installation(tmp_path)
    assert (found["basis"], found["unchanged"], found["tag"], found["diff_sha256"]) == ("commit", True, "v9.0", None)
    assert installation_words(found) == f"commit {found['commit'][:12]} (v9.0), unchanged"
    (tmp_path / "notes.txt").write_text("beside the packages")
    assert installation(tmp_path)["unchanged"]
    (tmp_path / "hpcbench/a.py").write_text("A = 2\n")
    (tmp_path / "hpcbench/new.py").write_text("")
    found = installation(tmp_path)
    assert (found["unchanged"], found["names"]) == (False, ["hpcbench/a.py", "hpcbench/new.py"])
    diff = subprocess.run(["git", "-C", str(tmp_path), "diff", "HEAD"], capture_output=True, check=True).stdout
    assert found["diff_sha256"] == hashlib.sha256(diff).hexdigest()


@pytest.mark.parametrize(
    ("record", "note"),
    [
        ({"basis": "commit", "unchanged": True, "commit": "0123456789abcdef", "tag": None},
         "commit 0123456789ab has no release tag (v*)"),
        ({"basis": "commit", "unchanged": True, "commit": "0123456789abcdef", "tag": "before-merge"},
         "commit 0123456789ab has no release tag (v*)"),
        ({"basis": "commit", "unchanged": True, "commit": "0123456789abcdef", "tag": "v0.2.0"}, ""),
        ({"basis": "RECORD", "unchanged": True, "distribution": "hpcbench-ml", "version": "0.2.0", "files": 4}, ""),
        ({"basis": "RECORD", "unchanged": True, "distribution": "hpcbench-ml", "version": "0.2.1.dev3", "files": 4},
         "version 0.2.1.dev3 is of a commit that has no release tag (v*)"),
        ({"basis": None, "unchanged": None}, ""),
        (None, ""),
    ],
)  # fmt: skip
def test_what_is_of_no_release(record: dict[str, object] | None, note: str) -> None:
    assert release_note(record) == note
    assert packages_words(record) == "; ".join([installation_words(record), *([note] if note else [])])


def test_of_several_tags_that_of_the_release_counts(tmp_path: Path) -> None:
    (tmp_path / "hpcbench").mkdir()
    (tmp_path / "hpcbench/a.py").write_text("A = 1\n")
    for words in (("init",), ("add", "."), ("commit", "-m", "one"), ("tag", "a-start"), ("tag", "v9.1.0")):
        git(tmp_path, *words)
    assert installation(tmp_path)["tag"] == "v9.1.0"
    assert release_note(installation(tmp_path)) == ""


@pytest.mark.parametrize(
    "record",
    [
        {"basis": "RECORD", "unchanged": True}, {"basis": "RECORD", "unchanged": "yes", "version": "1", "files": 4},
        {"basis": "commit", "unchanged": True, "commit": 7}, {"basis": ["commit"], "unchanged": True},
        {"basis": "commit", "unchanged": False, "commit": "abc"}, {"unchanged": True},
        {"basis": None, "unchanged": True}, {"basis": "commit"}, [], 7,
    ],
)  # fmt: skip
def test_a_record_that_somebody_damaged_tells_nothing(record: Any) -> None:
    assert installation_words(record) == "nothing tells whether the installed packages are the released ones"
    assert not is_record(record)
    assert release_note(record) == ""


def test_a_run_writes_it_down() -> None:
    record = environment_record(["hpcbench"])
    assert record["installation"]["basis"] in ("commit", "RECORD")
