"""Rounds of thousands of official logs: copies of those of the tests, each with its own seed and times."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from _common import ROOT

LOGS = ROOT / "tests" / "data" / "logs"
TIME = re.compile(r'("time_ms"\s*:\s*)(\d+)')
SEED = re.compile(r'("key"\s*:\s*"seed"\s*,\s*"value"\s*:\s*)-?\d+')
SYSTEM = "v1.0-nvidia-cosmoflow-system.json"
PUBLISHED = 3792
"""Number of logs of MLPerf HPC v0.7 to v3.0."""


@dataclass(frozen=True)
class Entry:
    """The runs of one folder, all made from one log."""

    log: str
    folder: str
    runs: int


KINDS = (
    Entry("v1.0-nvidia-cosmoflow.txt", "v1.0/{org}/results/{system}/strong/cosmoflow", 10),
    Entry("v1.0-nvidia-deepcam.txt", "v1.0/{org}/results/{system}/strong/deepcam", 5),
    Entry("v1.0-nvidia-cosmoflow.txt", "v1.0/{org}/results/{system}/weak/cosmoflow", 60),
    Entry("v1.0-nvidia-deepcam.txt", "v1.0/{org}/results/{system}/weak/deepcam", 60),
    Entry("v0.7-fujitsu-deepcam.txt", "v0.7/{org}/results/{system}/deepcam", 5),
)
"""An organization has one of each: 140 logs. Of the 1,806 published ones of both applications, 325 are in 42 entries
of time to train, 8 in each, and 1,481 in 12 of throughput, 123 in each; all 3,792 have 341 MB. Here it is 7 in each,
60 in each, and 354 MB.
"""


def entries(logs: int) -> Iterator[Entry]:
    """Yield entries with ``logs`` logs in total; the last may be cut short."""
    left, organization = logs, 0
    while left > 0:
        for kind in KINDS:
            folder = kind.folder.format(org=f"org{organization}", system=f"system{organization}")
            runs = min(kind.runs, left)
            left -= runs
            if runs:
                yield Entry(kind.log, folder, runs)
        organization += 1


def multiply(below: Path, logs: int = PUBLISHED, seed: int = 1) -> int:
    """Write ``logs`` logs as rounds below the folder ``below``; return their size in bytes."""
    draw = random.Random(seed)
    texts = {kind.log: (LOGS / kind.log).read_text(encoding="utf-8") for kind in KINDS}
    written = 0
    for entry in entries(logs):
        folder = below / entry.folder
        folder.mkdir(parents=True)
        description = below.joinpath(*Path(entry.folder).parts[:2], "systems", f"{Path(entry.folder).parts[3]}.json")
        description.parent.mkdir(exist_ok=True)
        shutil.copyfile(LOGS / SYSTEM, description)
        for number in range(1, entry.runs + 1):
            text = vary(texts[entry.log], draw)
            (folder / f"result_{number}.txt").write_text(text, encoding="utf-8")
            written += len(text)
    return written


def vary(text: str, draw: random.Random) -> str:
    """Return a log with another seed, another start, and a clock that runs up to 10 % faster or slower."""
    begin = int(next(TIME.finditer(text))[2])
    start, pace = begin + draw.randrange(10**9), draw.uniform(0.9, 1.1)
    text = TIME.sub(lambda match: f"{match[1]}{start + round((int(match[2]) - begin) * pace)}", text)
    return SEED.sub(lambda match: f"{match[1]}{draw.randrange(2**31)}", text)
