"""The tables of input: what a sample costs, and what each tier of storage would have to deliver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.characterisation.input_tables import input_sheet, tier_sheet
from hpcbench.characterisation.model import Reading, Roof
from hpcbench.characterisation.page import as_text
from hpcbench.characterisation.roofline import bounds
from hpcbench.characterisation.tiers import tier_of, tier_of_type
from tests.hpcbench.characterisation.made import ROOFS, made

DATA = made().input
TIERED = (
    *(roof for roof in ROOFS if roof.resource not in ("read", "write")),
    Roof("read", "/dev/shm", 4e9, "B/s", "", "memory"),
    Roof("read", "/nvme", 1e9, "B/s", "", "node-local"),
    Roof("read", "/scratch", 1e8, "B/s", "", "shared"),
    Roof("write", "/scratch", 5e7, "B/s", "", "shared"),
    Roof("read", "/mnt/fuse", 2e8, "B/s", ""),
)


def test_a_dataset_without_a_form_has_no_empty_brackets() -> None:
    lines = [line[0] for line in input_sheet(made(input=replace(DATA, form=""))).lines]
    assert "a sample as stored" in lines
    assert "a sample as stored (tfrecord, gzip)" in [line[0] for line in input_sheet(made()).lines]


def test_bytes_and_reads_of_a_sample_and_of_an_epoch() -> None:
    """12 calls read 2.5 MB of each of 128 samples."""
    found = dict(input_sheet(made()).lines)
    assert (found["bytes that a rank reads of a sample"], found["bytes read of an epoch"]) == ("2.38 MiB", "305 MiB")
    assert (found["its read calls for that"], found["read calls of an epoch"]) == ("12.0", "1,536")


def test_ranks_that_share_samples_read_their_parts_of_each() -> None:
    """Two ranks read 1.25 MB each of a sample of 2.5 MB: an epoch has as many bytes, and twice the calls."""
    reading = Reading(8, 1.25e6, 12.0, 0.02, 0.018, 0.001)
    shared = made(input=replace(DATA, reading=reading), configuration={"parallel": {"spatial": "2"}}, roofs=TIERED)
    found = dict(input_sheet(shared).lines)
    assert (found["bytes that a rank reads of a sample"], found["bytes read of an epoch"]) == ("1.19 MiB", "305 MiB")
    assert found["read calls of an epoch"] == "3,072"
    assert found["a rank needs at the attained step"] == "4.00 MB/s"
    assert tier_sheet(shared).lines[2] == (
        "shared", "/scratch", "1.19 MiB", "12.0", "305 MiB", "3,072", "4.00 MB/s", "38.4", "100 MB/s", "4.0 %",
    )  # fmt: skip
    assert [bound.bound_s for bound in bounds(shared) if bound.roof == "/scratch"] == [pytest.approx(0.05)]


def test_every_tier_has_what_it_would_have_to_deliver() -> None:
    """Four samples of 2.5 MB in a step of 1.25 s are 8 MB/s and 38.4 reads/s."""
    sheet = tier_sheet(made(roofs=TIERED))
    assert sheet.headers[:2] == ("tier", "where")
    cost = ("2.38 MiB", "12.0", "305 MiB", "1,536", "8.00 MB/s", "38.4")
    assert sheet.lines == (
        ("memory", "/dev/shm", *cost, "4.00 GB/s", "0.2 %"),
        ("node-local", "/nvme", *cost, "1.00 GB/s", "0.8 %"),
        ("shared", "/scratch", *cost, "100 MB/s", "8.0 %"),
        ("unknown", "/mnt/fuse", *cost, "200 MB/s", "4.0 %"),
    )
    text = as_text(made(roofs=TIERED))
    assert "Input by tier, if samples are read from there" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_tier_that_was_not_probed_has_no_roof() -> None:
    lines = tier_sheet(made(roofs=TIERED[:4])).lines
    assert [line[:2] for line in lines] == [("memory", "not probed"), ("node-local", "not probed"),
                                            ("shared", "not probed")]  # fmt: skip
    assert {line[8:] for line in lines} == {("-", "-")}
    assert {line[6] for line in lines} == {"8.00 MB/s"}


def test_staging_that_transforms_lands_another_form_on_the_node() -> None:
    """What the readers did with the stored form says nothing of the calls for the other."""
    lines = tier_sheet(made(roofs=TIERED, input=replace(DATA, landed_bytes=1e7))).lines
    assert {line[0]: line[2:7] for line in lines[:3]} == {
        "memory": ("9.54 MiB", "-", "1.19 GiB", "-", "32.0 MB/s"),
        "node-local": ("9.54 MiB", "-", "1.19 GiB", "-", "32.0 MB/s"),
        "shared": ("2.38 MiB", "12.0", "305 MiB", "1,536", "8.00 MB/s"),
    }


def test_without_a_step_or_a_reading_nothing_is_claimed() -> None:
    lines = tier_sheet(made(steps=(), roofs=(), input=replace(DATA, reading=None))).lines
    assert {line[2:] for line in lines} == {("2.38 MiB", "-", "305 MiB", "-", "-", "-", "-", "-")}
    assert tier_sheet(made(input=replace(DATA, stored_bytes=None))).lines == ()


def test_the_tier_of_the_samples_is_told() -> None:
    assert DATA.reading is not None
    lying = replace(DATA, reading=replace(DATA.reading, tier="shared"))
    assert tier_sheet(made(input=lying)).note.endswith(
        "The samples that were read lie on a filesystem that nodes share."
    )
    assert "lie on" not in tier_sheet(made()).note


@pytest.mark.parametrize(
    ("kind", "tier"),
    [("tmpfs", "memory"), ("lustre", "shared"), ("nfs4", "shared"), ("fuse.ceph", "shared"), ("gpfs", "shared"),
     ("ext4", "node-local"), ("xfs", "node-local"), ("overlay", "node-local"), ("fuse.sshfs", None), ("", None)],
)  # fmt: skip
def test_filesystems_have_tiers(kind: str, tier: str | None) -> None:
    assert tier_of_type(kind) == tier


def test_a_folder_has_the_tier_of_its_filesystem(tmp_path: Path) -> None:
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir():
        pytest.skip("needs /dev/shm, which Linux has")
    assert tier_of(shared_memory / "none" / "below") == "memory"
    assert tier_of(tmp_path) in ("memory", "node-local", "shared", None)
