"""Tables of files, selections by pattern, and listing a tree by many ranks."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.atomic import replacing
from staging.errors import DataError, InputError
from staging.options import StageOptions
from staging.prepare import arrival_order_of
from staging.probing.probe_sample import found_names
from staging.ranks.world import Alone
from staging.source import walk
from staging.source.listing import INDEX_NAME, UNKNOWN, Listing, Names, Selection
from staging.source.make_index import index_dataset
from staging.source.walk import Walked, list_names, list_tree
from staging.stage import stage
from tests.staging.thread_world import run_ranks

# Undecodable bytes of a name are lone surrogates U+DC80 to U+DCFF; no other surrogate stands in one.
CHARACTERS = st.characters(blacklist_characters="\0/", blacklist_categories=("Cs",)) | st.sampled_from("\udc80\udcff")
FILE_NAMES = st.lists(st.text(CHARACTERS, min_size=1, max_size=8), max_size=20)


def listing_of(*names: str) -> Listing:
    """A listing of empty files."""
    zeros = np.zeros(len(names), np.int64)
    return Listing(Names.of(names), zeros, zeros, zeros - 1)


def fill(root: Path, *names: str) -> None:
    """Files of as many bytes as their names have characters."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


@given(FILE_NAMES, st.integers(1, 7))
def test_a_table_gives_its_names_back(names: list[str], block: int) -> None:
    names = [name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") for name in names]
    table = Names.of(names)
    assert list(table) == names
    assert [table[index] for index in range(len(table))] == names
    assert [name.decode("utf-8", "surrogateescape") for part in table.blocks(block) for name in part] == names
    some = np.arange(0, len(names), 2)
    assert list(table.take(some)) == names[::2]


@given(st.lists(st.text("ab/", min_size=1, max_size=6), max_size=20))
def test_the_folders_of_names(names: list[str]) -> None:
    folders = {name.rpartition("/")[0].encode() for name in names if "/" in name}
    assert Names.of(names).folders() == folders


def test_a_listing_keeps_columns_together() -> None:
    columns = [np.arange(4) + start for start in (10, 20, 30)]
    part = Listing(Names.of("abcd"), *columns).take(np.array([1, 3]))
    assert list(part.names) == ["b", "d"]
    assert (part.sizes.tolist(), part.mtimes_ns.tolist(), part.checksums.tolist()) == ([11, 13], [21, 23], [31, 33])
    assert part.bytes == 24
    assert part.path(Path("/set"), 1) == Path("/set/d")


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (Selection(), ["a.npy", "b.h5", "train/a.npy", "train/c.npy"]),
        (Selection(include=("*.npy",)), ["a.npy", "train/a.npy", "train/c.npy"]),
        (Selection(include=("train/*", "b.?5")), ["b.h5", "train/a.npy", "train/c.npy"]),
        (Selection(exclude=("*/a.npy", "b*")), ["a.npy", "train/c.npy"]),
        (Selection(include=("*.npy",), exclude=("a.npy",)), ["train/a.npy", "train/c.npy"]),
        (Selection(include=("*.npy",), first=2), ["a.npy", "train/a.npy"]),
        (Selection(first=9), ["a.npy", "b.h5", "train/a.npy", "train/c.npy"]),
    ],
)
def test_a_selection(selection: Selection, left: list[str], tmp_path: Path) -> None:
    names = ["a.npy", "b.h5", "train/a.npy", "train/c.npy"]
    assert list(selection.of(listing_of(*names), tmp_path).names) == left
    fill(tmp_path, *names)
    walked = list_tree(tmp_path, Alone(), selection.include, selection.exclude, selection.first)
    assert list(walked.listing.names) == left


def test_what_a_selection_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"first \(0\) must be at least 1"):
        Selection(first=0)
    with pytest.raises(DataError) as error:
        Selection(("*.h5", "*.nc"), ("b*",)).of(listing_of("a.npy"), Path("/set"))
    assert (
        str(error.value) == "/set: holds no file that is left by include *.h5 *.nc and exclude b*; change the patterns"
    )
    with pytest.raises(DataError, match=r"/set: holds no file; name the folder of a dataset"):
        Selection().of(listing_of(), Path("/set"))
    with pytest.raises(DataError, match=rf"{tmp_path}: holds no file; name"):
        list_tree(tmp_path, Alone())
    fill(tmp_path, "a.npy")
    with pytest.raises(DataError, match=r"holds no file that is left by include \*\.h5"):
        list_tree(tmp_path, Alone(), include=["*.h5"])


def test_a_tree_is_listed_by_bytes_of_the_names(tmp_path: Path) -> None:
    names = ["a", "B", "a-b", "a.d/x", "ä", "z/y/x/w", "10", "9"]
    fill(tmp_path, *names)
    os.utime(tmp_path / "a-b", ns=(5, 1_700_000_000_123_456_789))
    found = list_tree(tmp_path, Alone()).listing
    assert list(found.names) == sorted(names, key=lambda name: name.encode())
    assert found.sizes.tolist() == [len(name.encode()) for name in found.names]
    assert found.mtimes_ns.tolist() == [(tmp_path / name).stat().st_mtime_ns for name in found.names]
    assert set(found.checksums.tolist()) == {UNKNOWN}


def test_hidden_and_temporary_files_and_the_index_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a", ".hidden", ".git/b", "train/.c", f"train/{INDEX_NAME}")
    index_dataset(tmp_path, threads=1)
    assert (tmp_path / INDEX_NAME).exists()
    with replacing(tmp_path / "d") as temporary:
        temporary.write_text("half")
        assert list(list_tree(tmp_path, Alone()).listing.names) == ["a", f"train/{INDEX_NAME}"]
    assert list(list_tree(tmp_path, Alone()).listing.names) == ["a", "d", f"train/{INDEX_NAME}"]


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_others_call_as_an_index_is_called_is_listed(tmp_path: Path, kind: str) -> None:
    fill(tmp_path, "a", *{"file": [INDEX_NAME], "folder": [f"{INDEX_NAME}/b"]}.get(kind, []))
    if kind == "dangling link":
        (tmp_path / INDEX_NAME).symlink_to(tmp_path / "gone")
        with pytest.raises(DataError, match=INDEX_NAME):
            list_tree(tmp_path, Alone())
        return
    expected = {"file": ["a", INDEX_NAME], "folder": ["a", f"{INDEX_NAME}/b"]}[kind]
    assert list(list_tree(tmp_path, Alone()).listing.names) == expected
    assert sorted(found_names(tmp_path, Selection())) == expected


def test_names_that_are_no_text_are_listed(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe.npy")).write_text("abc")
    except OSError:
        pytest.skip("this filesystem takes only text as names")
    found = list_tree(tmp_path, Alone(), include=["*.npy"]).listing
    assert bytes(found.path(tmp_path, 0)) == bytes(tmp_path) + b"/\xff\xfe.npy"


def test_links_to_files_are_followed_and_links_to_folders_are_not(tmp_path: Path) -> None:
    root = tmp_path / "set"
    fill(tmp_path, "else/where", "set/d")
    (root / "a").symlink_to(tmp_path / "else")
    (root / "b").symlink_to(tmp_path / "else" / "where")
    (root / "c").symlink_to(root)
    walked = list_tree(root, Alone())
    assert (list(walked.listing.names), walked.listing.sizes.tolist()) == (
        ["b", "d"],
        [len("else/where"), len("set/d")],
    )
    assert walked.linked_folders == 2
    # the first file is not the first name, which leads to a folder
    assert list(list_tree(root, Alone(), first=1).listing.names) == ["b"]
    assert list_tree(root, Alone(), exclude=["a", "c"]).linked_folders == 0
    with pytest.raises(DataError, match="set: holds no file that is left by include a c"):
        list_tree(root, Alone(), include=["a", "c"])


def test_every_folder_is_opened_once_and_every_wanted_file_looked_at_once(tmp_path: Path) -> None:
    fill(tmp_path, *(f"{folder}/{file}{suffix}" for folder in "abc" for file in "xyz" for suffix in (".npy", ".h5")))
    assert list_tree(tmp_path, Alone()).metadata_operations == 4 + 18
    assert list_tree(tmp_path, Alone(), include=["*.npy"]).metadata_operations == 4 + 9
    assert list_tree(tmp_path, Alone(), first=2).metadata_operations == 4 + 2
    walked = run_ranks([1, 2], lambda world: list_tree(tmp_path, world))
    operations = [each.metadata_operations for each in walked]
    assert sum(operations) == 4 + 18
    assert max(operations) <= 2 + 6 + 1  # an even share, though rank 0 alone opens the root


@pytest.mark.parametrize("ranks_per_node", [[1, 1], [2, 1], [2, 2, 3]])
def test_ranks_list_what_one_process_lists(tmp_path: Path, ranks_per_node: list[int]) -> None:
    flat = [f"flat/{number:04d}" for number in range(600)]
    fill(tmp_path, *flat, "one", "deep/er/and/deeper/still", *(f"wide{number}/x" for number in range(20)))
    (tmp_path / "link").symlink_to(tmp_path / "flat")

    def columns(walked: Walked) -> list[object]:
        found = walked.listing
        return [list(found.names), found.sizes.tolist(), found.mtimes_ns.tolist(), walked.linked_folders]

    expected = columns(list_tree(tmp_path, Alone()))
    assert expected[0] == sorted([*flat, "one", "deep/er/and/deeper/still", *(f"wide{n}/x" for n in range(20))])
    for walked in run_ranks(ranks_per_node, lambda world: list_tree(tmp_path, world)):
        assert columns(walked) == expected
    for walked in run_ranks(ranks_per_node, lambda world: list_tree(tmp_path, world, ["f*/*[05]"], ["*00"], 7)):
        assert list(walked.listing.names) == [f"flat/{number:04d}" for number in (5, 10, 15, 20, 25, 30, 35)]


def test_a_name_given_twice_is_one_entry_that_lands_once_in_its_first_turn(tmp_path: Path) -> None:
    fill(tmp_path / "source", "all.h5", "b", "c")
    names = ["b", "all.h5", "c", "b", "all.h5"]
    for ranks in ([1], [2, 1]):
        found = run_ranks(ranks, lambda world: list_names(tmp_path / "source", world, names).listing)[0]
        assert list(found.names) == ["all.h5", "b", "c"]
    assert arrival_order_of(found, names).tolist() == [1, 0, 2]
    options = StageOptions(tmp_path / "source", str(tmp_path / "local"))
    assert [stage(options, Alone(), names, quiet=True).totals.files_landed for _ in range(2)] == [3, 0]


def test_places_that_are_no_folder(tmp_path: Path) -> None:
    fill(tmp_path, "file")
    with pytest.raises(DataError) as error:
        list_tree(tmp_path / "gone", Alone())
    change = "name the folder of a dataset, on a filesystem that all nodes see"
    assert str(error.value) == f"{tmp_path}/gone: no such folder; {change}"
    with pytest.raises(DataError, match=r"file: is not a folder; name"):
        list_tree(tmp_path / "file", Alone())


def test_a_dangling_link(tmp_path: Path) -> None:
    fill(tmp_path, "a/b")
    (tmp_path / "a" / "c").symlink_to("gone")
    with pytest.raises(DataError, match=r"a/c: vanished while it was listed, or is a link to nothing; mend"):
        list_tree(tmp_path, Alone())
    assert list(list_tree(tmp_path, Alone(), exclude=["a/c"]).listing.names) == ["a/b"]


def test_special_files(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: is neither a file nor a folder; remove or exclude it"):
        list_tree(tmp_path, Alone())
    assert len(list_tree(tmp_path, Alone(), exclude=["pipe"]).listing) == 1


def test_folders_and_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a/b")
    real_scandir, real_stat = os.scandir, os.stat

    def refuse(place: bytes) -> object:
        if place.endswith(b"/a"):
            raise PermissionError(13, "Permission denied")
        return real_scandir(place)

    def broken(place: bytes) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(walk.os, "scandir", refuse)
    with pytest.raises(DataError, match=r"a: cannot be listed \(Permission denied\); check the folder"):
        list_tree(tmp_path, Alone())
    monkeypatch.setattr(walk.os, "scandir", real_scandir)
    monkeypatch.setattr(walk.os, "stat", broken)
    with pytest.raises(DataError, match=r"a/b: cannot be looked at \(Permission denied\); mend"):
        list_tree(tmp_path, Alone())
    monkeypatch.setattr(walk.os, "stat", real_stat)


def test_an_error_that_may_pass_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a")
    real, tried = os.stat, []

    def late(place: bytes) -> os.stat_result:
        tried.append(place)
        if len(tried) == 1:
            raise OSError(116, "Stale file handle")
        return real(place)

    monkeypatch.setattr(walk.os, "stat", late)
    assert list_tree(tmp_path, Alone()).listing.sizes.tolist() == [1]
    assert len(tried) == 2


@pytest.mark.parametrize("damage", ["folder", "file"])
def test_an_error_of_one_rank_is_raised_on_all(tmp_path: Path, damage: str) -> None:
    root = tmp_path / "set"
    if damage == "file":
        fill(root, *(f"{number:03d}" for number in range(9)))
        (root / "009").symlink_to("gone")

    def listed(world: object) -> str:
        with pytest.raises(InputError) as error:
            list_tree(root, world)  # type: ignore[arg-type]
        return str(error.value)

    said = run_ranks([1, 1, 1], listed)
    assert len(set(said)) == 1
    assert ("009: vanished" if damage == "file" else "set: no such folder") in said[0]
