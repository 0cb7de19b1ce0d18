"""Destinations: what a template stands for, what kind of storage it is, and who may have it."""

import errno
import fcntl
import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from staging.errors import DataError, InputError
from staging.ledger.destination_lock import lock, lock_destination, refuse_strangers, refuse_unmakeable
from staging.ledger.manifest import Manifest
from staging.options import StageOptions
from staging.ranks.world import Alone, Place
from staging.stage import stage
from staging.storage.destination import Storage, expand, storage

FORK = multiprocessing.get_context("fork")


def place(node: str, local_rank: int = 0) -> Place:
    return Place(local_rank, 2, 0, 1, local_rank, 2, node)


@pytest.mark.parametrize(
    ("template", "folder"),
    [
        ("/local/{node}/r{rank}", "/local/n7/r3"),
        ("$SCRATCH/set", "/scratch/me/set"),
        ("${SCRATCH}set", "/scratch/meset"),
        ("~/set", "/home/me/set"),
        ("~", "/home/me"),
        ("/a/~/b", "/a/~/b"),
        ("/a/../b//c/", "/b/c"),
        ("/a/$TRICK", "/a/{node}$HOME~"),
        ("/a/$(id)`id`;x", "/a/$(id)`id`;x"),
    ],
)
def test_fields_and_variables_are_filled_in_once(template: str, folder: str) -> None:
    environ = {"SCRATCH": "/scratch/me", "HOME": "/home/me", "TRICK": "{node}$HOME~"}
    assert expand(template, "n7", 3, environ) == Path(folder)


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert expand("set/{rank}", "n", 0, {}) == tmp_path / "set/0"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("$NVME/set", "destination '$NVME/set' needs $NVME, which is not set; set it or write the folder out"),
        ("${NVME}", "destination '${NVME}' needs $NVME, which is not set; set it or write the folder out"),
        ("~/set", "destination '~/set' needs $HOME, which is not set; set it or write the folder out"),
        ("/a/{host}", "destination '/a/{host}' holds '{host}'; the fields are {node} and {rank}"),
        ("/a/{}", "destination '/a/{}' holds '{}'; the fields are {node} and {rank}"),
        ("/a/{node", "destination '/a/{node' holds '{'; the fields are {node} and {rank}"),
        ("", "destination '' is empty on node n7; name a folder"),
        ("$EMPTY", "destination '$EMPTY' is empty on node n7; name a folder"),
    ],
)
def test_a_template_that_cannot_be_filled_in(template: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        expand(template, "n7", 3, {"EMPTY": ""})
    assert str(error.value) == said


def test_memory_is_told_from_disks(tmp_path: Path) -> None:
    shared_memory = Path("/dev/shm")
    if shared_memory.is_dir() and os.path.ismount(shared_memory):
        assert storage(shared_memory / "not" / "yet") == Storage("memory", "tmpfs")
    assert storage(Path("/proc")).tier == "other"


@pytest.mark.parametrize(
    ("device", "below", "tier"),
    [
        ("pci0/nvme/nvme0/nvme0n1/nvme0n1p1", [], "nvme"),
        ("pci0/ata1/block/sda/sda1", [], "other"),
        ("virtual/block/dm-0", ["pci0/nvme/nvme0/nvme0n1", "pci0/nvme/nvme1/nvme1n1"], "nvme"),
        ("virtual/block/md0", ["pci0/nvme/nvme0/nvme0n1", "pci0/ata1/block/sda"], "other"),
        ("", [], "other"),
    ],
)
@pytest.mark.parametrize("by_number", [True, False])
def test_nvme_is_found_also_below_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, below: list[str], tier: str, by_number: bool
) -> None:
    number = tmp_path.stat().st_dev
    sys = tmp_path / "sys"
    shown = sys / f"dev/block/{os.major(number)}:{os.minor(number)}" if by_number else sys / "class/block/vol"
    shown.parent.mkdir(parents=True)
    monkeypatch.setattr("staging.storage.destination.mount_of", lambda _: ("/dev/vol", "xfs"))
    for name in filter(None, [device, *below]):
        (sys / "devices" / name).mkdir(parents=True)
    for name in below:
        slaves = sys / "devices" / device / "slaves"
        slaves.mkdir(exist_ok=True)
        (slaves / Path(name).name).symlink_to(sys / "devices" / name)
    if device:
        shown.symlink_to(sys / "devices" / device)
    assert storage(tmp_path, sys) == Storage(tier, "xfs")  # type: ignore[arg-type]


def hold(destination: Path, source: Path, pipe: "multiprocessing.connection.Connection") -> None:
    try:
        lock_destination(destination, source, place("n1"), "job")
        pipe.send("")
    except DataError as error:
        pipe.send(str(error))
    signal.pause()


@pytest.fixture
def holder(tmp_path: Path) -> BaseProcess:  # type: ignore[misc]
    """A process that holds ``tmp_path / "dst"`` as node n1 of job "job"."""
    (tmp_path / "src").mkdir()
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=hold, args=(tmp_path / "dst", tmp_path / "src", theirs))
    process.start()
    assert ours.recv() == ""
    yield process
    process.kill()
    process.join()


def test_a_second_staging_is_told_who_holds_the_destination(tmp_path: Path, holder: BaseProcess) -> None:
    with pytest.raises(DataError) as error:
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "other job")
    assert str(error.value).startswith(f"{tmp_path}/dst: another staging holds it (pid {holder.pid} on node n1 since 2")
    assert str(error.value).endswith(" UTC); wait for it, or choose another destination")
    assert (tmp_path / "dst/.staging/lock").read_text()


def test_two_nodes_of_a_job_may_not_share_a_destination(tmp_path: Path, holder: BaseProcess) -> None:
    with pytest.raises(DataError) as error:
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n2"), "job")
    assert str(error.value) == (f"{tmp_path}/dst: two nodes share this destination (n1, n2); put {{node}} into it")


def test_two_nodes_are_told_also_where_locks_do_not_reach_across_nodes(
    tmp_path: Path, holder: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staging.ledger.destination_lock.fcntl.flock", lambda *_: None)
    with pytest.raises(DataError, match=r"two nodes share this destination \(n1, n2\); put \{node\} into it"):
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n2"), "job")
    lock_destination(tmp_path / "dst", tmp_path / "src", place("n2"), "another job").release()


HOLDERS = (
    "[" * 100_000, '{"job": "a"}', '{"job": "a", "node": [1]}', '{"job": "a", "node": "\\u001b[2J"}', "[]", "\xff",
    '{"pid": "' + "9" * 100_000 + '"}', f'{{"time": {"[" * 900}{"]" * 900}}}',
)  # fmt: skip
"""What a lock may hold that nobody wrote who holds it."""


@pytest.mark.parametrize("said", HOLDERS)
def test_a_lock_that_says_anything_is_told_in_one_line(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staging.ledger.destination_lock.WRITTEN_S", 0.0)
    (tmp_path / ".staging").mkdir()
    with (tmp_path / ".staging/lock").open("w+", encoding="latin-1") as held:
        held.write(said)
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DataError) as error:
            lock(tmp_path, "n1", "a")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


def test_the_lock_dies_with_its_process(tmp_path: Path, holder: BaseProcess) -> None:
    holder.kill()
    holder.join()
    lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "job").release()


def test_a_release_is_final_and_other_ranks_of_the_node_hold_nothing(tmp_path: Path) -> None:
    with lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a") as held:
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1", local_rank=1), "a").release()
        with pytest.raises(DataError, match=f"pid {os.getpid()} on node n1"):
            lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "b")
    held.release()
    lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "b").release()


def test_a_child_that_inherited_the_lock_does_not_keep_it(tmp_path: Path) -> None:
    held = lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a")
    child = FORK.Process(target=signal.pause)
    child.start()
    held.release()
    lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "b").release()
    child.kill()
    child.join()


def test_a_lock_that_was_removed_before_it_was_taken_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".staging").mkdir()
    flock = fcntl.flock

    def remove_and_lock(descriptor: int, kind: int) -> None:
        (tmp_path / ".staging/lock").unlink()
        flock(descriptor, kind)

    monkeypatch.setattr("staging.ledger.destination_lock.fcntl.flock", remove_and_lock)
    with pytest.raises(DataError, match="another staging holds it"):
        lock(tmp_path, "n1", "a")


def test_a_filesystem_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("staging.ledger.destination_lock.fcntl.flock", refuse)
    with pytest.raises(DataError, match=r"has no locks \(Function not implemented\); choose a destination on the node"):
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a")


def test_a_lock_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dst/.staging").mkdir(parents=True)
    (tmp_path / "dst/.staging/lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"lock: is a link, not a file; remove it"):
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a")
    assert not (tmp_path / "elsewhere").exists()

    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("staging.ledger.destination_lock.open_book", refuse)
    with pytest.raises(DataError, match=r"lock: cannot be written \(Permission denied\); choose another destination"):
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a")


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        ("src", "is the source itself"),
        ("src/new/dst", "lies within the source {}/src"),
        ("link/dst", "lies within the source {}/src"),
        ("", "has the source {}/src within it"),
    ],
)
def test_source_and_destination_lie_apart(tmp_path: Path, destination: str, said: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "src")
    with pytest.raises(DataError) as error:
        lock_destination(tmp_path / destination, tmp_path / "src", place("n1"), "a")
    said = said.format(tmp_path)
    assert str(error.value) == f"{tmp_path / destination}: {said}; choose a destination outside the source"
    assert list((tmp_path / "src").iterdir()) == []


def test_a_folder_of_somebody_else_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst/thesis.tex").write_text("x")
    with pytest.raises(DataError, match="dst: is not empty and was not made by staging; empty it, or choose another"):
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a")
    assert [item.name for item in (tmp_path / "dst").iterdir()] == ["thesis.tex"]
    (tmp_path / "dst/.staging").symlink_to(tmp_path)
    with pytest.raises(DataError, match="was not made by staging"):
        lock_destination(tmp_path / "dst", tmp_path / "src", place("n1"), "a")


def test_a_file_or_a_dead_link_in_place_of_the_destination(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    for name in ("file", "dead"):
        with pytest.raises(DataError, match=f"{name}: is not a folder; choose another destination"):
            lock_destination(tmp_path / name, tmp_path / "src", place("n1"), "a")
    with pytest.raises(DataError, match=r"below: cannot be made \(Not a directory\); choose another destination"):
        lock_destination(tmp_path / "file/below", tmp_path / "src", place("n1"), "a")


def test_a_destination_that_may_not_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("staging.ledger.destination_lock.Path.iterdir", refuse)
    with pytest.raises(DataError, match=r"cannot be looked at \(Permission denied\); choose another destination"):
        refuse_strangers(tmp_path)


def test_a_destination_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    refuse_unmakeable(tmp_path)
    refuse_unmakeable(tmp_path / "new" / "deep")
    with pytest.raises(DataError, match=r"below: cannot be made, since .*/file is not a folder; choose another"):
        refuse_unmakeable(tmp_path / "file" / "below")
    with pytest.raises(DataError, match="/proc/nope/x: cannot be made, since /proc takes no files; choose another"):
        refuse_unmakeable(Path("/proc/nope/x"))
    monkeypatch.setattr("staging.ledger.destination_lock.os.access", lambda path, mode: False)
    with pytest.raises(DataError, match=rf"deep: cannot be made, since {tmp_path} is not writable; choose another"):
        refuse_unmakeable(tmp_path / "new" / "deep")
    refuse_unmakeable(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_new_and_empty_and_own_folders_are_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new/deep", "empty", "empty"):
        lock_destination(tmp_path / name, tmp_path / "src", place("n1"), "a").release()
        Manifest.open(tmp_path / name, {})
        (tmp_path / name / "staged").touch()


@pytest.mark.parametrize("book", ["lock", "probe.json", "mine"])
def test_books_of_no_staging_do_not_make_files_ours(tmp_path: Path, book: str) -> None:
    (tmp_path / "out/.staging").mkdir(parents=True)
    (tmp_path / "out/.staging" / book).touch()
    (tmp_path / "out/a").write_text("mine")
    with pytest.raises(DataError, match="is not empty and was not made by staging"):
        lock_destination(tmp_path / "out", tmp_path / "src", place("n1"), "a")


def test_a_full_disk_is_locked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who holds it is not told then."""
    (tmp_path / ".staging").mkdir()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    with lock(tmp_path, "n1", "a"), pytest.raises(DataError, match=r"another staging holds it \(pid \? on node \?"):
        lock(tmp_path, "n1", "b")


def test_a_file_under_a_name_that_the_source_has_is_replaced_and_others_stay(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "to"
    source.mkdir()
    (source / "data").write_text("staged")
    options = StageOptions(source, str(destination))
    stage(options, Alone(), quiet=True)
    for name in ("notes.txt", "other.txt"):
        (destination / name).write_text("mine")
    stage(options, Alone(), quiet=True)
    assert (destination / "notes.txt").read_text() == "mine"
    (source / "notes.txt").write_text("of the source")
    stage(options, Alone(), quiet=True)
    assert (destination / "notes.txt").read_text() == "of the source"
    assert (destination / "other.txt").read_text() == "mine"
