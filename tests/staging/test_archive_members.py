"""What members of archives take is estimated from the headers of one, and never more is presumed than is known."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from staging import archive_members
from staging.archive_members import look_into


def archive(path: Path, sizes: list[int]) -> Path:
    """An archive of files of these sizes in one folder."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as file:
        for number, size in enumerate(sizes):
            header = tarfile.TarInfo(f"folder/{number:03d}")
            header.size = size
            file.addfile(header, io.BytesIO(bytes(size)))
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_others_are_presumed_to_be_like_an_archive_that_is_known_as_a_whole(name: str, tmp_path: Path) -> None:
    members = look_into(archive(tmp_path / name, [100] * 20))
    assert members is not None
    assert (members.is_all, members.sizes, members.tar_bytes) == (True, (100,) * 20, 20 * 1024)
    more, files = members.beyond(3 * members.tar_bytes, 4096)
    assert files == 3 * 21, "members and their folder"
    assert more >= 3 * (21 * 4096 - members.tar_bytes)


def test_of_an_archive_that_is_not_known_as_a_whole_only_what_is_known_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small labels first, then large images: as many small files as bytes of all archives allow would be refused."""
    monkeypatch.setattr(archive_members, "HEADERS", 10)
    members = look_into(archive(tmp_path / "a.tar", [100] * 10 + [1 << 20]))
    assert members is not None
    assert (members.is_all, len(members.sizes)) == (False, 10)
    assert members.beyond(1 << 40, 4096)[1] == 11


def test_large_members_take_no_more_than_the_bytes_of_their_archive(tmp_path: Path) -> None:
    members = look_into(archive(tmp_path / "a.tar", [8192] * 5))
    assert members is not None
    more, _ = members.beyond(members.tar_bytes, 4096)
    assert more < 4096, "a block of the folder, and lines of the manifest, without the headers of the archive"


@pytest.mark.parametrize("size", [1 << 70, (1 << 63) - 1])
def test_a_header_of_an_impossible_size_is_left_to_the_move(size: int, tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("huge").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + size.to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(1024))
    members = look_into(tmp_path / "a.tar")
    assert members is None or not members.is_all


@pytest.mark.parametrize("content", [b"", b"no archive" * 100])
def test_what_is_no_archive_is_left_to_the_move(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    assert look_into(tmp_path / "a.tar") is None
