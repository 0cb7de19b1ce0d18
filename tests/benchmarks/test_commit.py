"""The commit that a benchmark's record names."""

import subprocess
from pathlib import Path

from _common import commit


def git(root: Path, *arguments: str) -> str:
    """What ``git`` prints in ``root``, with a name of its own for who commits."""
    who = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_changed_code_is_said_and_changed_results_are_not(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    assert commit(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    code, record = tmp_path / "code.py", results / "loop.json"
    for path in (code, record):
        path.write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert commit(tmp_path) == head
    record.write_text("2\n")
    assert commit(tmp_path) == head
    code.write_text("2\n")
    assert commit(tmp_path) == f"{head}-dirty"
