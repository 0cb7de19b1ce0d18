"""Power logs of a submission, as a run with ``measure.power`` left them: one for each node.

Format: ``power/result_<i>/node_<j>.txt`` with the lines power_measurement_start, power_reading (W), conversion_eff and
power_measurement_stop (MLPerf training policies, power measurement).
"""

from __future__ import annotations

from pathlib import Path

from hpcbench.submission.scrub import Scrubber
from staging.formats.regular import read_text

POWER = "power"
"""Folder of a run with its power logs."""


def copy_power(source: Path, folder: Path, scrub: Scrubber) -> None:
    """Copy the logs of a run's nodes, numbered from 0."""
    folder.mkdir(parents=True)
    for number, path in enumerate(sorted(source.glob("node_*.txt"))):
        text = scrub.log(read_text(path, encoding="utf-8", errors="replace"), {})
        (folder / f"node_{number}.txt").write_text(text, encoding="utf-8")
