"""Checkpoints written in a thread: to the bit what was there when they were asked for, while the training goes on."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcbench.exits import Aborted
from hpcbench.parallel.group import Group
from hpcbench.results.checkpoint_files import complete, resume_advice
from hpcbench.train import checkpoint_io, checkpoint_writer
from hpcbench.train.checkpoint_io import Checkpoint, load, load_newest
from hpcbench.train.checkpoint_times import ASSUMED_BANDWIDTH, CheckpointTimes
from hpcbench.train.checkpoint_writer import CheckpointWriter
from hpcbench.train.host_copy import HostCopy, tree_bytes
from staging.ranks.launch import Launch
from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

ALONE = Group(Launch(rank=0, world_size=1), torch.device("cpu"), None)
PROGRAM = Path(__file__).parent / "programs" / "sharded_checkpoints.py"


class Gate:
    """Holds every write until ``open`` is set, so that a test decides what happens meanwhile."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self._save = checkpoint_io.save

    def __call__(self, *arguments: Any) -> Path:
        self.reached.set()
        assert self.open.wait(60)
        return self._save(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate before each write; open at the end of the test, so that no thread is left."""
    made = Gate()
    monkeypatch.setattr(checkpoint_io, "save", made)
    yield made
    made.open.set()


class Training:
    """A small model with batch norm and a channels-last layout, trained by Adam on drawn samples."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        layers = (nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 64, 3))
        self.model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.step = 0

    def run(self, until: int, writer: CheckpointWriter | None = None) -> None:
        """Train; with a checkpoint after every third step."""
        while self.step < until:
            samples = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(self.step))
            self.optimizer.zero_grad()
            self.model(samples).square().sum().backward()
            self.optimizer.step()
            self.step += 1
            if writer is not None and self.step % 3 == 0:
                writer.save(self.content())

    def content(self) -> Checkpoint:
        """What it is now, not copied."""
        state = {"epoch": 0, "step": self.step, "history": [{"loss": 0.5}]}
        return Checkpoint(self.model.state_dict(), self.optimizer.state_dict(), {}, state, {"seed": 1})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        checkpoint_io.load_model(self.model, checkpoint.model)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        self.step = checkpoint.state["step"]


def same(one: Any, other: Any) -> bool:
    """Whether two trees are the same to the bit, with types and strides of their tensors."""
    if isinstance(one, torch.Tensor):
        alike = (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        return alike and one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_training_with_checkpoints_is_the_one_without_and_continues_from_each(tmp_path: Path) -> None:
    plain, saving = Training(), Training()
    plain.run(12)
    with CheckpointWriter(tmp_path, 10, ALONE) as writer:
        saving.run(12, writer)
    assert same(saving.model.state_dict(), plain.model.state_dict())
    assert same(saving.optimizer.state_dict(), plain.optimizer.state_dict())
    found = complete(tmp_path)
    assert [load(path).state["step"] for path in found] == [3, 6, 9, 12]
    for path in found:
        resumed = Training()
        resumed.restore(load(path))
        resumed.run(12)
        assert same(resumed.model.state_dict(), plain.model.state_dict()), path
        assert same(resumed.optimizer.state_dict()["state"], plain.optimizer.state_dict()["state"]), path


def test_what_is_written_is_what_was_there_at_the_call(tmp_path: Path, gate: Gate) -> None:
    """Everything is changed in place before the thread may write."""
    training = Training()
    training.run(2)
    statistics = [[torch.ones(2), torch.tensor(3)], [torch.zeros(2), torch.tensor(4)]]
    content = replace(training.content(), statistics=statistics)
    checkpoint_io.write(content, tmp_path / "at-once.pt")
    expected = torch.load(tmp_path / "at-once.pt")
    writer = CheckpointWriter(tmp_path / "checkpoints", 2, ALONE)
    writer.save(content)
    with torch.no_grad():
        for values in (*training.optimizer.state.values(), training.model.state_dict()):
            for tensor in values.values():
                tensor.fill_(7)
        statistics[1][0].fill_(7)
        content.state["history"][0]["loss"] = 7
        content.setup["seed"] = 7
        training.optimizer.param_groups[0]["lr"] = 7
    gate.open.set()
    writer.wait()
    found = load_newest(tmp_path / "checkpoints")
    assert found is not None
    assert same(vars(found), {key: value for key, value in expected.items() if key != "schema"})


def test_a_second_checkpoint_waits_for_the_first_and_uses_its_memory(tmp_path: Path, gate: Gate) -> None:
    writer = CheckpointWriter(tmp_path, 5, ALONE)
    tensor = torch.ones(1000)
    content = Checkpoint({"w": tensor}, {}, {}, {"epoch": 0, "step": 1}, {})
    writer.save(content)
    tensor.fill_(2)
    second = threading.Thread(target=lambda: writer.save(replace(content, state={"epoch": 0, "step": 2})))
    second.start()
    assert gate.reached.wait(60)
    second.join(0.2)
    assert second.is_alive()
    gate.open.set()
    second.join()
    writer.wait()
    assert [load(path).model["w"][0].item() for path in complete(tmp_path)] == [1, 2]
    assert writer.host_bytes == 4000
    assert writer.completed == 2
    assert writer.times.saves[1].stall_s > 0.2 > writer.times.saves[1].copy_s


def test_the_loop_is_not_held_by_the_disk_unless_asked(tmp_path: Path, gate: Gate) -> None:
    """With the disk out of reach ``save`` returns; a synchronous one does not before the file is there."""
    content = Checkpoint({"w": torch.ones(9)}, {}, {}, {"epoch": 0, "step": 1}, {})
    writer = CheckpointWriter(tmp_path / "a", 2, ALONE)
    writer.save(content)
    assert complete(tmp_path / "a") == []
    assert writer.completed == 0
    gate.open.set()
    writer.save(content, wait=True)
    assert len(complete(tmp_path / "a")) == 2
    CheckpointWriter(tmp_path / "b", 2, ALONE, asynchronous=False).save(content)
    assert len(complete(tmp_path / "b")) == 1


def test_ranks_that_write_nothing_do_nothing(tmp_path: Path) -> None:
    other = Group(Launch(rank=1, world_size=2), torch.device("cpu"), None)
    with CheckpointWriter(tmp_path / "c", 2, other) as writer:
        writer.save(Checkpoint({"w": torch.ones(9)}, {}, {}, {"epoch": 0, "step": 1}, {}))
    assert not writer.takes_part
    assert not (tmp_path / "c").exists()
    assert writer.host_bytes == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_parameters_that_are_not_finite_are_noticed_when_waited_for(
    dtype: torch.dtype, value: float, tmp_path: Path
) -> None:
    largest = torch.full((2, 3), torch.finfo(dtype).max, dtype=dtype)
    content = Checkpoint({"count": torch.tensor(3), "w": largest}, {}, {}, {"epoch": 0, "step": 1}, {})
    writer = CheckpointWriter(tmp_path, 1, ALONE)
    writer.save(content)
    writer.wait()
    largest[1, 1] = value
    writer.save(replace(content, state={"epoch": 0, "step": 2}))
    with pytest.raises(Aborted, match=r"parameter w is not finite; lower --optim\.lr"):
        writer.wait()
    writer.wait()  # said once
    assert [load(path).state["step"] for path in complete(tmp_path)] == [1]


def test_a_file_that_may_not_grow_is_an_error_with_its_name_when_waited_for(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, 1, ALONE)
    small = Checkpoint({"w": torch.ones(10)}, {}, {}, {"epoch": 0, "step": 1}, {})
    writer.save(small, wait=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        writer.save(Checkpoint({"w": torch.ones(2**19)}, {}, {}, {"epoch": 0, "step": 2}, {}))
        with pytest.raises(OSError, match="File too large") as caught:
            writer.save(small)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert "epoch-0000-step-00000002.pt" in caught.value.filename
    assert [load(path).state["step"] for path in complete(tmp_path)] == [1]
    assert len(list(tmp_path.iterdir())) == 2, "nothing is left of the other"
    assert resume_advice(tmp_path) == "resume with --resume"


def test_a_full_disk_is_an_error_with_its_name_when_waited_for(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        writer = CheckpointWriter(tmp_path, 1, ALONE)
        for step in (1, 2):
            writer.save(Checkpoint({"w": torch.ones(2**17)}, {}, {}, {"epoch": 0, "step": step}, {}))
            if step == 1:
                writer.wait()
        with pytest.raises(OSError, match="No space left") as caught:
            writer.wait()
        assert caught.value.errno == errno.ENOSPC
        assert [load(path).state["step"] for path in complete(tmp_path)] == [1]
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_process_that_ends_without_waiting_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    """Also where an error ends it; the error of the checkpoint does not hide that one."""
    content = Checkpoint({"w": torch.ones(9)}, {}, {}, {"epoch": 0, "step": 1}, {})
    (tmp_path / "file").touch()
    for folder in (tmp_path / "checkpoints", tmp_path / "file"):
        writer = CheckpointWriter(folder, 1, ALONE)
        with pytest.raises(ZeroDivisionError), writer:  # noqa: PT012
            writer.save(content)
            raise ZeroDivisionError
    assert len(complete(tmp_path / "checkpoints")) == 1


def test_times_are_those_of_the_files(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    times = CheckpointTimes()
    writer = CheckpointWriter(tmp_path, 2, ALONE, times=times)
    assert times.words() == ""
    assert writer.expected_write_s(5 * 10**8) == 5 * 10**8 / ASSUMED_BANDWIDTH
    content = Checkpoint({"w": torch.ones(10**6)}, {"m": [torch.ones(5)]}, {}, {"epoch": 0, "step": 1}, {})
    assert tree_bytes(vars(content)) == 4 * 10**6 + 20
    monkeypatch.setattr(checkpoint_writer, "ASSUMED_BANDWIDTH", 1000)
    writer.save(content)
    assert gate.reached.wait(60)
    time.sleep(0.05)
    expected = writer.expected_write_s(4 * 10**6) - times.saves[-1].copy_s
    assert 7000 < expected < 8000, "its own 4000 s, and what is left of that under way"
    gate.open.set()
    writer.wait()
    [saved] = times.saves
    assert saved.write_bytes == complete(tmp_path)[0].stat().st_size > 4 * 10**6
    assert saved.write_s > 0.05
    assert saved.copy_s < saved.stall_s
    rate = saved.write_bytes / saved.write_s
    assert writer.expected_write_s(10**9) == pytest.approx(saved.copy_s + 10**9 / rate)
    assert load_newest(tmp_path, times) is not None
    summary = times.summary()
    assert summary["checkpoint_read_bytes"] == summary["checkpoint_write_bytes"] == saved.write_bytes
    assert summary["checkpoint_write_s"] == saved.write_s
    assert summary["checkpoint_stall_s"] == saved.stall_s
    assert 0 < summary["checkpoint_read_s"] < 60
    assert times.words().startswith("1 checkpoint: held the training for ")
    assert "; checkpoint read with " in times.words()


def test_copies_keep_types_and_layouts_and_take_new_memory_where_shapes_change() -> None:
    host = HostCopy()
    image = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    tree = {"a": [image, torch.tensor(3, dtype=torch.int64)], "b": (torch.randn(4, 6).t(), 1.5, None, "words")}
    first = host.copy(tree)
    assert same(first, tree)
    assert host.nbytes == tree_bytes(tree)
    again = host.copy(tree)
    assert again["a"][0].data_ptr() == first["a"][0].data_ptr() != image.data_ptr()
    other = {"a": [image.contiguous()], "b": ()}
    assert same(host.copy(other), other)
    assert host.nbytes == tree_bytes(other)


@pytest.mark.slow
@pytest.mark.mpi
def test_sharded_checkpoints_are_those_of_whole_tensors_to_the_bit(mpiexec: str, tmp_path: Path) -> None:
    check_sharded([mpiexec, "-n", "2", sys.executable, str(PROGRAM), str(tmp_path)], 2)


@pytest.mark.slow
def test_shards_that_are_copied_over_the_ranks_of_a_sample(tmp_path: Path) -> None:
    """On a mesh of two by two, where two of the four ranks have nothing to send."""
    check_sharded(spawned(4, PROGRAM), 4, SCRATCH=str(tmp_path))


def check_sharded(command: list[str], ranks: int, **variables: str) -> None:
    """What the program says of its ranks."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    everyone = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(everyone) == ranks
    first, *others = everyone
    assert first["same"] == [True, True, True]
    assert first["tensors"] > 20
    # Its own shards, those of another rank as they are received, and the whole; other ranks only have their shards.
    assert first["whole_bytes"] < first["host_bytes"] < 2.5 * first["whole_bytes"]
    assert first["host_bytes"] == first["planned"] + 8 * 4, "and Adam's counters of steps of eight parameters"
    assert all(other["host_bytes"] < first["whole_bytes"] for other in others)
    assert first["error"].startswith("FileExistsError") or first["error"].startswith("NotADirectoryError")
    assert all(other["error"].startswith("Aborted: checkpoint of rank 0: ") for other in others)
