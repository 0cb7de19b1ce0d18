"""A closed package whose runs trained on another set than the published one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.cli.main import main


def test_a_smaller_set_is_no_submission(
    tmp_path: Path, qualifying: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of CosmoFlow the official checkers count no samples."""
    for run in qualifying:
        log = run / "mllog.txt"
        log.write_text(log.read_text().replace('"value": 524288', '"value": 4096'))
    assert main(["package", "LAB", *map(str, qualifying), "--system", "box", "--out", str(tmp_path)]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "not submittable: 4,096 training samples, the published set has 524,288, in 10 runs" in words
    assert "Official checkers: no errors" in words
