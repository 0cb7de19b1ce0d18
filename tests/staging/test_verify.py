"""Rereading finds every kind of damage, and only damage."""

import os
from pathlib import Path

import crc32c
import pytest

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger import verify
from staging.ledger.manifest import Manifest
from staging.ledger.verify import BadFile, Verified, in_all, reread
from staging.progress import Progress

CONTENT = bytes(range(256)) * 40


def stage(destination: Path, names: list[str]) -> None:
    for name in names:
        (destination / name).write_bytes(CONTENT)
    checksum = crc32c.crc32c(CONTENT)
    Manifest.open(destination, {}).append([Landed(name, len(CONTENT), checksum, name, 0) for name in names])


@pytest.mark.parametrize("threads", [1, 3])
def test_every_kind_of_damage_is_a_line(tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PIECE_BYTES", 1000)
    names = ["flipped", "folder", "gone", "good", "linked", "longer", "pipe", "shorter"]
    stage(tmp_path, names)
    flipped = bytearray(CONTENT)
    flipped[5000] ^= 1
    (tmp_path / "flipped").write_bytes(flipped)
    (tmp_path / "gone").unlink()
    (tmp_path / "linked").unlink()
    (tmp_path / "linked").symlink_to("good")
    (tmp_path / "longer").write_bytes(CONTENT + b"\0")
    (tmp_path / "shorter").write_bytes(CONTENT[:-1])
    (tmp_path / "pipe").unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "inner").symlink_to(tmp_path)
    Manifest(tmp_path).append([Landed("inner/file", 1, 1, "x", 0)])
    Manifest(tmp_path).append([Landed("../outside", 1, 1, "x", 0)])
    with Progress(10, "verify", "files", enabled=False) as progress:
        found = reread(tmp_path, threads, progress)
    assert [f"{file.name}: {file.problem}" for file in found.bad] == [
        "../outside: leads out of the destination, and was not read",
        f"flipped: has CRC32C {crc32c.crc32c(flipped):08x} where {crc32c.crc32c(CONTENT):08x} landed",
        "folder: is no file",
        "gone: is not there",
        "inner/file: leads out of the destination, and was not read",
        "linked: cannot be read (Too many levels of symbolic links)",
        "longer: has 10241 bytes where 10240 landed",
        "pipe: is no file",
        "shorter: has 10239 bytes where 10240 landed",
    ]
    assert progress.done == found.files == 10
    # flipped and good were read; the sizes of others told enough
    assert found.bytes == 2 * len(CONTENT)


def test_ranks_share_the_files(tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(23)]
    stage(tmp_path, names)
    for name in names:
        (tmp_path / name).unlink()
    parts = [reread(tmp_path, 2, rank=rank, ranks=3) for rank in range(3)]
    assert [file.name for file in in_all(parts).bad] == names
    assert [len(part.bad) for part in parts] == [part.files for part in parts] == [8, 8, 7]


def test_a_file_without_checksum_is_compared_by_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"abc")
    Manifest.open(tmp_path, {}).append([Landed("a", 3, -1, "a", 0), Landed("b", 4, -1, "b", 0)])
    assert reread(tmp_path, 1) == Verified(2, 0, 2, (BadFile("b", "has 3 bytes where 4 landed"),))


def test_without_a_manifest_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no staging manifest"):
        reread(tmp_path, 1)
