"""The figures in the tables of the page on jobs are those of the results and of the published records."""

from __future__ import annotations

import csv
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/running-on-a-supercomputer.md").read_text(encoding="utf-8")
SYSTEMS = {
    "NVIDIA DGX A100": "dgxa100_", "JUWELS Booster": "juwelsbooster_", "Perlmutter": "perlmutter_",
    "Longhorn": "longhorn-", "HoreKa": "horeka_",
}  # fmt: skip
"""How the names of systems in the records begin."""


def table(first_heading: str) -> list[list[str]]:
    """The cells of the rows of the only table whose heading begins so."""
    (lines,) = [text.splitlines() for text in PAGE.split("\n\n") if text.startswith(first_heading)]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in lines[2:]]


def test_the_calls_of_a_starting_rank_are_those_that_were_counted() -> None:
    record = json.loads((ROOT / "benchmarks/results/start.json").read_text(encoding="utf-8"))
    found = record["results"]
    first, second = found["train_rank_0_of_2"], found["train_rank_1_of_2"]
    counted = [
        found["import_torch"], found["import_torch_by_hpcbench"], first["start"], second["start"], first["all"],
        found["brought"]["shared"], found["execute_packed_job"],
    ]  # fmt: skip
    rows = table("| | calls per rank |")
    assert [row[1] for row in rows] == [f"{calls:,}" for calls in counted]
    assert "copy of the environment" in rows[counted.index(found["brought"]["shared"])][0]
    assert f"For the row with {found['brought']['shared']} calls, `hpcbench submit --bring-environment`" in PAGE
    assert f"with torch {record['machine']['packages']['torch'].rpartition('.')[0]}" in PAGE
    assert f"limits a rank to {found['bound_start']:,} calls" in PAGE


def test_the_trainings_of_from_login_to_plot_are_published_ones() -> None:
    with (ROOT / "hpcbench/published/entries.csv").open(encoding="utf-8", newline="") as file:
        entries = [entry for entry in csv.DictReader(file) if entry["mode"] == "time to train"]
    rows = table("| | set | machine (round) |")
    assert len(rows) == 6
    published = [cells(row, entry) for row in rows for entry in entries if is_of(row, entry)]
    assert published == rows, "one entry for each row"


def is_of(row: list[str], entry: dict[str, str]) -> bool:
    """Whether a row is about an entry, by application, machine, round and size."""
    machine, published_round = row[2].rstrip(")").split(" (")
    size = (row[0].lower(), published_round, row[3].split()[0])
    same = (entry["application"], entry["round"], entry["nodes"]) == size
    return same and entry["system"].startswith(SYSTEMS[machine]) and f"{int(entry['global_batch_size']):,}" == row[4]


def cells(row: list[str], entry: dict[str, str]) -> list[str]:
    """The row as the entry says it."""
    nodes, seconds = int(entry["nodes"]), float(entry["time_to_train_s"])
    device = next(name for name in ("A100", "V100") if name in entry["accelerator"])
    return [
        *row[:1], f"{int(entry['train_samples']):,} + {int(entry['validation_samples']):,}", row[2],
        f"{nodes} x {int(entry['accelerators']) // nodes} {device}", f"{int(entry['global_batch_size']):,}",
        entry["epochs"], f"{seconds:,.0f} s", entry["staging_s"] and f"{float(entry['staging_s']):,.0f} s",
        f"{nodes * seconds / 3600:.2g}",
    ]  # fmt: skip
