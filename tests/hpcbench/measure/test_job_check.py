"""A look at a job from all its ranks: what each would see, and what is made of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcbench.measure.job_check import Asked, Seen, judge, try_storage

pytestmark = pytest.mark.usefixtures("forked_processes")

ASKED = Asked(ranks=4, nodes=2, cores=2, gpus=1, local="/local", local_gib=10)
GOOD = [
    Seen(rank, f"n{rank // 2}", (2 * (rank % 2), 2 * (rank % 2) + 1), 1, 100.0, "", 50.0 if rank % 2 == 0 else None)
    for rank in range(4)
]


def test_a_job_that_is_as_asked() -> None:
    found = judge(ASKED, GOOD)
    assert (found.wrong, found.notes) == ((), ())
    assert found.summary == "4 ranks on 2 nodes, each with 2 cores and 1 GPU, at least 50.0 GiB free at /local"


def test_a_job_of_one_rank_is_told_of_in_the_singular() -> None:
    asked = Asked(ranks=1, nodes=1, cores=1, gpus=0, local="", local_gib=0)
    seen = [Seen(0, "n0", (0,), 0, 100.0, "", None)]
    assert judge(asked, seen).summary == "1 rank on 1 node with 1 core"
    others = [replace(seen[0], rank=rank, node="n1") for rank in (1, 2, 3)]
    two = judge(replace(asked, ranks=4, nodes=2), [*seen, *others])
    assert two.wrong == ("node n0 has 1 rank instead of 2; start as many on every node",)


def changed(rank: int, **values: object) -> list[Seen]:
    """All ranks, one of which sees something else."""
    return [replace(each, **values) if each.rank == rank else each for each in GOOD]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([replace(each, node="n0") for each in GOOD], "the ranks are on 1 node instead of 2: n0"),
        (changed(2, node="n0"), "node n0 has 3 ranks instead of 2; start as many on every node"),
        (changed(3, cores=(7,)), "rank 3 on node n1 sees 1 core instead of 2; ask for more, or bind less"),
        (
            [replace(each, gpus=0) for each in GOOD],
            "rank 0 on node n0 sees 0 GPUs instead of 1, and 3 more ranks too few; ask for more, or bind less",
        ),
        (changed(2, trouble="/local cannot be written (No space left)"), "node n1: /local cannot be written"),
    ],
)
def test_what_is_wrong_ends_the_job_with_the_reason(seen: list[Seen], words: str) -> None:
    assert judge(ASKED, seen).wrong[0].startswith(words)


def test_what_is_worth_knowing_does_not_end_it() -> None:
    shared = [replace(each, cores=(0, 1, 2, 3)) for each in GOOD]
    assert judge(ASKED, shared).notes[0] == "the ranks of node n0 are not bound to cores of their own"
    few = [replace(each, cores=(0, 1)) for each in GOOD]
    assert judge(ASKED, few).notes[0] == "the 2 ranks of node n0 share 2 cores, fewer than they asked for"
    apart = judge(ASKED, changed(3, clock_s=103.5))
    assert apart.notes == ("the clocks of n0 and n1 are 3.5 s apart; their logs do not compare",)
    assert not apart.wrong


def test_storage_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    asked = Asked(1, local=f"{tmp_path}/$NAME/{{node}}")
    trouble, free = try_storage(asked, "n1", 0, {"NAME": "x"})
    assert trouble == ""
    assert free is not None
    assert free > 0
    assert not [path for path in tmp_path.rglob("*") if path.name == "n1"]
    assert "has" in try_storage(replace(asked, local_gib=1e9), "n1", 0, {"NAME": "x"})[0]
    assert "NAME" in try_storage(asked, "n1", 0, {})[0]
    (tmp_path / "file").touch()
    there = replace(asked, local=f"{tmp_path}/file/x")
    assert "cannot be written (Not a directory)" in try_storage(there, "n1", 0, {})[0]


def test_what_an_earlier_attempt_staged_counts_as_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's dataset takes more than half of the node; after a restart on it, most of it is there."""
    need = 2**22
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=need // 4))
    asked = Asked(1, local=f"{tmp_path}/hpcbench-17", local_gib=need / 2**30)
    assert "0.0 GiB free" in try_storage(asked, "n1", 0, {})[0]
    staged = tmp_path / "hpcbench-17" / "train"
    staged.mkdir(parents=True)
    (staged / "sample").write_bytes(bytes(3 * need // 4))
    assert try_storage(asked, "n1", 0, {})[0] == ""
    (tmp_path / "hpcbench-17" / "dangling").symlink_to("nowhere")
    (staged / "sample").write_bytes(bytes(need // 2))
    assert "free of the" in try_storage(asked, "n1", 0, {})[0]


def hpcbench(*words: object) -> subprocess.CompletedProcess[str]:
    """A command on one process."""
    command = [sys.executable, "-m", "hpcbench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


TRAIN = ("train", "cosmoflow", "--preset", "smoke", "--train.max_epochs", "1", "--train.target", "null")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("doctor", "--job", "--ranks", 4), (*TRAIN, "--check-job", "ranks=4")])
def test_ranks_that_do_not_know_each_other(words: tuple[object, ...]) -> None:
    done = hpcbench(*words)
    assert done.returncode == 2
    assert done.stderr == (
        "hpcbench: error: a process that no launcher started: 1 rank instead of 4; the launcher's variables do not "
        "arrive, or it belongs to another MPI\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["doctor", "--job"], "doctor --job needs --ranks"),
        (["doctor", "--nodes", 2], "--nodes is for a look at a job; add --job"),
        (["doctor", "--local", "/x"], "--local is for a look at a job; add --job"),
        ([*TRAIN, "--check-job", "ranks"], "--check-job ranks () must be a whole number; choose from 1 to"),
        ([*TRAIN, "--check-job", "nodes=2"], "--check-job (nodes=2) lacks ranks=N, the number that the launcher was"),
        ([*TRAIN, "--check-job", "ranks=1,gpu=1"], "--check-job (gpu=1) must be NAME=NUMBER, each name once; names:"),
        ([*TRAIN, "--check-job", "ranks=1,local_gib=-1"], "--check-job local_gib (-1) must be at least 0"),
    ],
)
def test_bad_input_is_one_line(words: list[object], said: str) -> None:
    done = hpcbench(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@pytest.mark.slow
@pytest.mark.mpi
def test_two_ranks_look_and_one_tells(mpiexec: str, tmp_path: Path) -> None:
    command = [mpiexec, "-n", "2", sys.executable, "-m", "hpcbench", "doctor", "--job", "--ranks", "2"]
    done = subprocess.run([*command, "--local", str(tmp_path / "x")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the job is as asked: 2 ranks on 1 node, each with 1 core, at least") == 1
    done = subprocess.run([*command, "--cores", "100000"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("cores instead of 100000, and 1 more rank too few") == 1


@pytest.mark.slow
def test_a_training_that_is_not_as_asked_ends_before_it_begins(tmp_path: Path) -> None:
    """The process that would train looks itself, in the folder that it would stage to, and leaves nothing."""
    run, local = tmp_path / "run", tmp_path / "node" / "set"
    words = (*TRAIN, "--data.root", tmp_path / "none", "--run-dir", run, "--staging.destination", local)
    done = hpcbench(*words, "--check-job", "ranks=1,cores=100000,local_gib=1e9")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert "GiB free of the 1e+09 GiB that the dataset needs" in lines[0]
    assert "cores instead of 100000; ask for more, or bind less" in lines[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mpi
@pytest.mark.slow
def test_the_ranks_that_look_are_those_that_train(mpiexec: str, small_cosmos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [mpiexec, "-n", "2", sys.executable, "-m", "hpcbench", *TRAIN, "--data.root", str(small_cosmos)]
    command += ["--run-dir", str(run), "--train.baselines", "false"]
    done = subprocess.run([*command, "--check-job", "ranks=2,nodes=2"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("hpcbench: error: the ranks are on 1 node instead of 2") == 1
    assert not run.exists()
    done = subprocess.run([*command, "--check-job", "ranks=2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the job is as asked: 2 ranks on 1 node, each with 1 core") == 1
    assert (run / "summary.json").exists()
