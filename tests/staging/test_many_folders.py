"""More folders than a process may open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.staging.processes import contents


def test_a_process_that_may_open_few_files_stages_many_folders(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "to"
    for number in range(300):
        (source / f"{number}").mkdir(parents=True)
        (source / f"{number}/file").write_text(f"{number}")
    limited = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "staging", str(source), str(destination)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert contents(destination) == contents(source)
