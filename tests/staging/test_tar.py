"""Archives: members equal what tar itself extracts, whatever packed them; unsafe, cut and damaged ones are refused."""

import io
import lzma
import shutil
import struct
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.landing.transforms import sink_maker
from tests.staging import transforming
from tests.staging.opened import opened
from tests.staging.transforming import TIME, files

MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2"}
CONTENTS = {"a.npy": b"one" * 700, "deep/er/b.npy": b"", "c.bin": bytes(512)}
LONG = "x" * 90 + "/" + "y" * 150 + "/" + "z" * 120 + ".npy"


def packed(contents: dict[str, bytes], mode: str = "w", form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=form) as archive:  # type: ignore[call-overload]
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def odd(**fields: object) -> bytes:
    """An archive of one sound member and one with the given fields."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        sound = tarfile.TarInfo("sound")
        sound.size = 5
        archive.addfile(sound, io.BytesIO(b"sound"))
        member = tarfile.TarInfo("odd")
        for key, value in fields.items():
            setattr(member, key, value)
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    return file.getvalue()


def land(folder: Path, name: str, data: bytes, piece: int = 1 << 20, transform: str = "untar") -> list[Landed]:
    return transforming.land(folder, transform, name, data, piece)


def problem(folder: Path, data: bytes, name: str = "t/a.tar") -> str:
    """What is said of an archive, of which no member stays."""
    return transforming.problem(folder, "untar", name, data, 1 << 20)


@pytest.mark.parametrize("suffix", MODES)
def test_members_land_below_the_folder_of_the_archive(tmp_path: Path, suffix: str) -> None:
    name = f"train/shard-0007{suffix}"
    landed = land(tmp_path, name, packed(CONTENTS, MODES[suffix]), 777)
    expected = {f"train/{member}": data for member, data in CONTENTS.items()}
    assert files(tmp_path) == expected
    assert landed == [Landed(member, len(data), crc32c(data), name, TIME) for member, data in expected.items()]


NAMES = st.text(st.sampled_from("abäß名.-_ "), min_size=1, max_size=70).filter(lambda name: not set(name) <= {".", " "})


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(NAMES, st.binary(max_size=1500), max_size=5),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    st.integers(1, 2000),
)
def test_any_pieces_of_any_archive(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes], form: int, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("to")
    land(folder, "a.tar", packed(contents, form=form), piece)
    assert files(folder) == contents


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_names_too_long_for_a_header(tmp_path: Path, form: int) -> None:
    land(tmp_path, "a.tar", packed({LONG: b"long", "short": b"short"}, form=form), 100)
    assert files(tmp_path) == {LONG: b"long", "short": b"short"}


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar", "oldgnu", "v7"])
def test_what_gnu_tar_packs(tmp_path: Path, form: str) -> None:
    if shutil.which("tar") is None:
        pytest.skip("tar is missing")
    for name, data in CONTENTS.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(data)
    command = ["tar", f"--format={form}", "-C", str(tmp_path / "from"), "-cf", str(tmp_path / "a.tar"), "."]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip(f"this tar does not know the format {form}")
    land(tmp_path / "to", "a.tar", (tmp_path / "a.tar").read_bytes(), 1000)
    assert files(tmp_path / "to") == CONTENTS


def test_the_size_of_a_pax_record_counts(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a")
        member.size, member.pax_headers = 700, {"size": "700", "comment": "none"}
        archive.addfile(member, io.BytesIO(bytes(700)))
    land(tmp_path, "a.tar", file.getvalue())
    assert files(tmp_path) == {"a": bytes(700)}


def test_other_files_land_as_they_are(tmp_path: Path) -> None:
    assert land(tmp_path, "t/a.npy", b"data")[0].source == "t/a.npy"
    assert files(tmp_path) == {"t/a.npy": b"data"}


def test_members_go_through_the_next_transform(tmp_path: Path) -> None:
    import gzip

    data = packed({"a.gz": gzip.compress(b"one"), "b.gz": gzip.compress(b"two")}, "w:gz")
    landed = land(tmp_path, "s.tgz", data, 50, "untar+gunzip")
    assert files(tmp_path) == {"a": b"one", "b": b"two"}
    assert {file.source for file in landed} == {"s.tgz"}


BAD_NAMES = ("../evil", "deep/../../evil", "/evil", "a//b", ".x.0123456789ab.part", "train/.staging/evil")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    said = problem(tmp_path / "to", odd(name=name))
    assert said.startswith(f"t/a.tar: the file name '{name}' ")
    assert list(tmp_path.rglob("*evil*")) == []


def pax(key: bytes, value: bytes) -> bytes:
    """A header of one pax record."""
    rest = b" %b=%b\n" % (key, value)
    length = next(length for length in range(len(rest), len(rest) + 9) if length == len(rest) + len(str(length)))
    return header(tarfile.XHDTYPE, length, b"%d%b" % (length, rest))


@pytest.mark.parametrize("name", ["a\0b", "a\0/b", "\0", "d/a\0", "d/" * 256 + "f", "n" * 5000])
def test_names_that_no_filesystem_has(tmp_path: Path, name: str) -> None:
    said = problem(tmp_path, pax(b"path", name.encode()) + odd())
    assert said.startswith(f"t/a.tar: the file name '{name[:500]}".replace("\0", "\\x00"))
    assert said.endswith("' is none that a filesystem has; rename it, or leave it out")


@pytest.mark.parametrize("size", [b"9" * 20, b"9" * 5000, b"-1", b"", b"1.5", "\u0663".encode()])
def test_a_pax_size_that_is_none(tmp_path: Path, size: bytes) -> None:
    said = problem(tmp_path, pax(b"size", size) + odd())
    assert said.startswith("t/a.tar: member 'sound' has a size of '")
    assert len(said) < 200


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a symbolic link"),
        ({"type": tarfile.LNKTYPE, "linkname": "sound"}, "is a hard link"),
        ({"type": tarfile.CHRTYPE}, "is a character device"),
        ({"type": tarfile.BLKTYPE}, "is a block device"),
        ({"type": tarfile.FIFOTYPE}, "is a pipe"),
        ({"type": tarfile.GNUTYPE_SPARSE}, "is a sparse file"),
        ({"pax_headers": {"GNU.sparse.major": "1"}}, "is a sparse file"),
        ({"type": b"V"}, "is of unknown type b'V'"),
    ],
)
def test_what_is_neither_file_nor_folder(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    assert problem(tmp_path, odd(**fields)) == (
        f"t/a.tar: member 'odd' {said}, and only files and folders are extracted; "
        "pack it without, with links followed (tar --dereference)"
    )


def test_a_member_twice(tmp_path: Path) -> None:
    assert problem(tmp_path, odd(name="./sound")) == "t/a.tar: becomes two files named 't/sound'; pack it again"


def test_a_member_in_two_archives_of_a_folder(tmp_path: Path) -> None:
    make = sink_maker("untar")
    data = packed(CONTENTS)
    for name in ("t/a.tar", "u/b.tar", "t/a.tar"):  # an archive that is tried again is no clash
        sink = make(opened(tmp_path), name, len(data), TIME)
        sink.write(memoryview(data))
        sink.close()
    sink = make(opened(tmp_path), "t/b.tar", len(data), TIME)
    with pytest.raises(DataError) as error:
        sink.write(memoryview(data))
    sink.abandon()
    assert str(error.value) == (
        "t/b.tar: would become t/a.npy, and so would t/a.tar; exclude one of them, or rename what it becomes"
    )
    assert files(tmp_path) == {f"{folder}/{name}": data for folder in "tu" for name, data in CONTENTS.items()}


def test_cut_short_anywhere(tmp_path: Path) -> None:
    data = packed({"a": b"first", "b": b"second" * 200})
    end = len(data.rstrip(b"\0")) + -len(data.rstrip(b"\0")) % 512
    for length in range(0, end, 37):
        assert (
            problem(tmp_path, data[:length])
            == f"t/a.tar: is an archive cut short at byte {length}; pack or copy it again"
        )
    land(tmp_path, "t/a.tar", data[: end + 512])


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".tar.bz2"])
def test_cut_short_when_compressed(tmp_path: Path, suffix: str) -> None:
    data = packed(CONTENTS, MODES[suffix])
    kind = {".tar.gz": "gzip", ".tar.xz": "xz", ".tar.bz2": "bzip2"}[suffix]
    for length in (0, 1, len(data) // 2, len(data) - 1):
        said = problem(tmp_path, data[:length], "t/a" + suffix)
        assert said == f"t/a{suffix}: is {kind} data cut short at byte {length}; copy it again"
    assert problem(tmp_path, packed(CONTENTS), "t/a" + suffix).startswith(f"t/a{suffix}: is not {kind}; leave it out")
    bad = bytearray(data)
    bad[len(bad) // 2] ^= 0xFF
    assert f"t/a{suffix}: " in problem(tmp_path, bytes(bad), "t/a" + suffix)


def test_an_xz_header_that_claims_a_dictionary_of_gigabytes(tmp_path: Path) -> None:
    data = bytearray(lzma.compress(packed({"a": b"one"}), preset=9))
    land(tmp_path, "sound.tar.xz", bytes(data))
    assert data[14:16] == b"\x21\x01"
    end = 12 + 4 * data[12]
    for size in (30, 40):  # of 128 MiB, and of 4 GiB (.xz file format 1.2, 5.3.1)
        data[16] = size
        data[end : end + 4] = struct.pack("<I", zlib.crc32(data[12:end]))
        said = problem(tmp_path / "to", bytes(data), "b.tar.xz")
        assert said == "b.tar.xz: has damaged xz data behind byte 0 (Memory usage limit exceeded); copy it again"


def test_a_damaged_header_and_what_is_no_archive(tmp_path: Path) -> None:
    data = bytearray(packed(CONTENTS))
    data[20] ^= 1
    assert problem(tmp_path, bytes(data)) == (
        "t/a.tar: is not a sound tar archive at byte 0 (bad checksum); pack or copy it again"
    )
    assert "is not a sound tar archive at byte 0" in problem(tmp_path, b"no archive" * 100)


def test_bytes_behind_the_end(tmp_path: Path) -> None:
    data = packed({"a": b"first"})
    said = problem(tmp_path, data + data)
    assert said == f"t/a.tar: has other bytes behind its end, at byte {len(data)}; pack or copy it again"


def header(kind: bytes, size: int, content: bytes = b"") -> bytes:
    member = tarfile.TarInfo("extension")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("size", [0, 2 << 20])
def test_an_extension_of_an_odd_size_takes_no_memory(tmp_path: Path, kind: bytes, size: int) -> None:
    assert problem(tmp_path, header(kind, size)) == (
        f"t/a.tar: has a name or attributes of {size} bytes at byte 0, at most 1048576 go; pack or copy it again"
    )


@pytest.mark.parametrize("records", [b"path=a\n", b"99 path=a\n", b"9 path=a", b"0 a=b\n", b"-1 a=b\n", b"6 =bcd\n"])
def test_damaged_pax_records(tmp_path: Path, records: bytes) -> None:
    said = problem(tmp_path, header(tarfile.XHDTYPE, len(records), records))
    assert said.startswith("t/a.tar: has damaged pax attributes before byte 512 (")


def test_a_negative_size(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 12
    block[148:156] = b" " * 8
    block[148:155] = f"{sum(block):06o}\0".encode()
    assert problem(tmp_path, bytes(block)) == "t/a.tar: member 'a' has a size of -1 bytes; pack or copy it again"


def test_an_archive_much_larger_than_a_piece_is_never_held(tmp_path: Path) -> None:
    import tracemalloc

    piece = memoryview(bytes(1 << 20))
    sink = sink_maker("untar")(opened(tmp_path), "a.tar", 1 << 30, TIME)
    member = tarfile.TarInfo("a")
    member.size = 64 << 20
    sink.write(memoryview(member.tobuf()))
    tracemalloc.start()
    for _ in range(64):
        sink.write(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sink.write(memoryview(bytes(1024)))
    assert sink.close()[0].size == 64 << 20
    assert peak < 1 << 20
