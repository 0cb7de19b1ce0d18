"""Runs that signals end anywhere and anyhow: all ranks stop together, and resumed they are as if nothing had been."""

from __future__ import annotations

import random
import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.train.conftest import FAST, arguments
from tests.hpcbench.train.interrupted import attempts, launched, plan, same_run, stopped_by
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")
Train = Callable[..., int]
SIGNALS = ("SIGTERM", "SIGUSR1", "SIGINT")
STOCHASTIC = ("--model.dropout", "0.5", "--data.augment", "true")
NEVER = ("--train.target", "1e-9")
TOLERANCE = 1e-9


@pytest.fixture
def chance() -> random.Random:
    """Draws that a failed test can repeat."""
    seed = secrets.randbelow(10**6)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(scope="module")
def climate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 training and 5 validation samples of 48 x 64 x 16, for a model with batch norm."""
    root = tmp_path_factory.mktemp("data") / "deepcam"
    words = ["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(root), "--processes", "1"]
    assert main([*words, "--simulate.train_samples", "8", "--simulate.validation_samples", "5"]) == 0
    return root


def deepcam(root: Path, folder: Path, *settings: str) -> list[str]:
    """The command line of a short run with batch norm: 4 epochs of ranks x batch 1."""
    place = ["train", "deepcam", "--preset", "smoke", "--data.root", str(root), "--run-dir", str(folder)]
    new = () if "--resume" in settings else ("--train.target", "1", "--train.local_batch_size", "1")
    return [*place, *FAST, "--train.precision", "64-true", *new, *settings]


@pytest.mark.slow
def test_a_run_whose_epochs_are_longer_than_its_time_comes_to_its_target_bit_for_bit(
    cosmos: Path, train: Train, chance: random.Random, tmp_path: Path
) -> None:
    """24 steps an epoch, and at most 11 in an attempt."""
    common = (*STOCHASTIC, "--train.local_batch_size", "1", "--optim.lr", "0.0003")
    assert train(tmp_path / "long", *common, "--train.max_epochs", "2") == 0
    quality = RunFolder.open(tmp_path / "long").read_epochs()["mae"]
    target = ("--train.target", repr(float(quality.min())))
    assert train(tmp_path / "whole", *common, *target, "--train.max_epochs", "2") == 0
    folder, step, each, ends = tmp_path / "run", 0, [], []
    last = 24 * (int(quality.idxmin()) + 1)
    while True:
        step += chance.randint(5, 11)
        more = ("--resume",) if each else (*common, *target, "--train.max_epochs", "2")
        attempt: dict[str, Any] = {"words": arguments(cosmos, folder, *more)}
        if step < last:
            ends.append((step, chance.choice(SIGNALS)))
            attempt["plan"] = plan("step", *ends[-1])
        each.append(attempt)
        if step >= last:
            break
    found = attempts(*each)
    codes = [128 + signal.Signals[name] for _, name in ends]
    assert [done["codes"] for done in found] == [[code] for code in (*codes, 0)], found
    assert [f"aborted: signal {name}" in done["said"] for (_, name), done in zip(ends, found, strict=False)]
    same_run(folder, tmp_path / "whole")
    one, other = (RunFolder.open(path).read_summary() for path in (folder, tmp_path / "whole"))
    assert (one.status, one.cause, one.signal, one.resumed) == ("success", "target", None, len(each) - 1)
    assert len(each) >= 3
    assert (one.epochs_to_target, one.metrics, one.steps) == (other.epochs_to_target, other.metrics, other.steps)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "ranks"), [("step", 2), ("evaluation", 2), ("evaluation", 7)])
def test_simulated_ranks_continue_bit_for_bit(
    where: str, ranks: int, climate: Path, chance: random.Random, tmp_path: Path
) -> None:
    """Each simulated rank has batch-norm statistics of its own within an epoch; the mean of 7 equal ones is rounded."""
    common = ("--parallel.simulated_ranks", str(ranks), "--train.max_epochs", "2")
    assert main(deepcam(climate, tmp_path / "whole", *common)) == 3
    folder, number = tmp_path / "run", chance.randint(1, 7) if where == "step" else 2
    first = {"words": deepcam(climate, folder, *common), "plan": plan(where, number, "SIGTERM")}
    found = attempts(first, {"words": deepcam(climate, folder, "--resume")})
    assert [each["codes"] for each in found] == [[143], [3]], found
    same_run(folder, tmp_path / "whole")


MESHES: dict[str, tuple[str, ...]] = {
    "data": (),
    "spatial": ("--parallel.spatial", "2"),
    "sharded": ("--parallel.shard_states", "true"),
    "overlap": ("--staging.overlap", "--staging.threads", "1", "--staging.destination"),
    "batch norm": (),
    "spatial batch norm": ("--parallel.spatial", "2"),
}
"""Settings of two ranks."""
BATCH_NORM = ("batch norm", "spatial batch norm")


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_stop_at_one_step_and_continue_as_without_interruption(
    mesh: str, cosmos: Path, climate: Path, chance: random.Random, mpiexec: str, tmp_path: Path
) -> None:
    def words(folder: str, *more: str) -> list[str]:
        place = (str(tmp_path / f"staged-{folder}"),) if mesh == "overlap" else ()
        new = () if "--resume" in more else (*MESHES[mesh], *place, "--train.max_epochs", "2")
        if mesh in BATCH_NORM:
            return deepcam(climate, tmp_path / folder, *new, *more)
        fixed = () if "--resume" in more else (*NEVER, *STOCHASTIC, "--train.precision", "64-true")
        return arguments(cosmos, tmp_path / folder, *fixed, *new, *more, *batch)

    batch = ("--train.local_batch_size", "4" if mesh == "spatial" else "2")
    ranks, name = chance.choice([(0,), (1,), (0, 1)]), chance.choice(SIGNALS[:2])
    steps = {"batch norm": 4, "spatial batch norm": 8}.get(mesh, 6)  # an epoch
    # With batch norm before the first evaluation, since it makes the statistics of all ranks one.
    step = chance.randint(1, steps - 2 if mesh in (*BATCH_NORM, "overlap") else 2 * steps - 2)
    print(f"{name} to {ranks} after step {step}")
    code, said = launched([mpiexec, "-n", "2"], plan("step", step, name, *ranks), words("run"))
    assert code == 128 + signal.Signals[name], said
    stopped_by(tmp_path / "run", name, step, late=2)
    assert said.count("aborted: signal") == 1, said
    found = attempts(*({"words": each, "world_size": 2} for each in (words("run", "--resume"), words("whole"))))
    assert [each["codes"] for each in found] == [[3, 3], [3, 3]], found
    same_run(tmp_path / "run", tmp_path / "whole", TOLERANCE)


@pytest.mark.parametrize("ranks", slow_except([1], [1, 2]))
@pytest.mark.parametrize("late", slow_except(["training"], ["training", "validation"]))
@pytest.mark.slow
def test_a_signal_while_a_sample_is_waited_for_stops_before_its_step(
    ranks: int, late: str, cosmos: Path, tmp_path: Path
) -> None:
    """A file that takes a minute to read: schedulers kill sooner than it comes."""
    staged = ("--staging.overlap", "--staging.threads", "1", "--staging.destination")
    common = (*NEVER, *STOCHASTIC, "--train.precision", "64-true", "--train.local_batch_size", str(4 // ranks))
    one = ("--train.max_epochs", "1")
    whole, run = tmp_path / "whole", tmp_path / "run"
    number = {"training": 14, "validation": 30}[late] // ranks
    moment = plan("late sample", number, "SIGTERM", 0)
    found = attempts(
        {"words": arguments(cosmos, whole, *common, *one, *staged, str(tmp_path / "a")), "world_size": ranks},
        {"words": arguments(cosmos, run, *common, *one, *staged, str(tmp_path / "b")), "world_size": ranks,
         "plan": moment},
        {"words": arguments(cosmos, run, "--resume"), "world_size": ranks},
    )  # fmt: skip
    assert [each["codes"] for each in found] == [[3] * ranks, [143] * ranks, [3] * ranks], found
    assert found[1]["seconds"] < 40, "25 s after the signal no file may be begun"
    assert RunFolder.open(run).read_summary().resumed == 1
    same_run(run, whole, TOLERANCE if ranks > 1 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_while_shards_are_dealt_anew_stops_before_the_next_step(
    rank: int, cosmos: Path, tmp_path: Path
) -> None:
    common = (*NEVER, *STOCHASTIC, "--train.precision", "64-true", "--train.max_epochs", "3")
    shards = ("--staging.placement", "shard", "--staging.reshuffle", "true", "--staging.destination")
    more = ("--train.local_batch_size", "2", "--train.checkpoint_every", "3")

    def words(name: str) -> list[str]:
        return arguments(cosmos, tmp_path / name, *common, *more, *shards, str(tmp_path / f"{name}-{{rank}}"))

    found = attempts(
        {"words": words("whole"), "world_size": 2},
        {"words": words("run"), "world_size": 2, "plan": plan("reshuffle", 1, "SIGTERM", rank)},
        {"words": arguments(cosmos, tmp_path / "run", "--resume"), "world_size": 2},
    )
    assert [each["codes"] for each in found] == [[3, 3], [143, 143], [3, 3]], found
    assert RunFolder.open(tmp_path / "run").read_summary().resumed == 1
    same_run(tmp_path / "run", tmp_path / "whole", TOLERANCE)


OUTSIDE = {"init": "SIGUSR1", "staging": "SIGTERM"}


@pytest.mark.slow
@pytest.mark.parametrize("where", OUTSIDE)
def test_a_signal_before_the_first_step_ends_a_run_that_cannot_be_resumed(
    where: str, cosmos: Path, tmp_path: Path
) -> None:
    staged = ("--staging.destination", str(tmp_path / "staged"))
    first = {"words": arguments(cosmos, tmp_path / "run", *staged), "plan": plan(where, 1, OUTSIDE[where])}
    found = attempts(
        first, {"words": arguments(cosmos, tmp_path / "run", "--resume")},
        {"words": arguments(cosmos, tmp_path / "run", *staged, "--train.max_epochs", "1", "--resume-or-start")},
    )  # fmt: skip
    assert [each["codes"] for each in found] == [[128 + signal.Signals[OUTSIDE[where]]], [2], [0]], found
    assert f"aborted: signal {OUTSIDE[where]}" in found[0]["said"]
    assert found[1]["said"].count("\n") == 1
    problems = ("--run-dir", "is not a complete run folder", f"run folder {tmp_path / 'run'} does not exist")
    assert any(problem in found[1]["said"] for problem in problems)
    assert "resume with" not in found[0]["said"]


@pytest.mark.slow
def test_a_signal_in_an_evaluation_or_while_a_checkpoint_is_written_loses_nothing(
    cosmos: Path, train: Train, tmp_path: Path
) -> None:
    common = (*NEVER, *STOCHASTIC, "--train.local_batch_size", "2", "--train.max_epochs", "3")
    assert train(tmp_path / "whole", *common) == 3
    found = attempts(
        {"words": arguments(cosmos, tmp_path / "run", *common), "plan": plan("evaluation", 2, "SIGUSR1")},
        {"words": arguments(cosmos, tmp_path / "run", "--resume"), "plan": plan("checkpoint", 1, "SIGTERM")},
        {"words": arguments(cosmos, tmp_path / "run", "--resume")},
    )
    assert [each["codes"] for each in found] == [[138], [143], [3]], found
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_layers_that_draw_from_torch_s_generator_draw_the_same_after_an_interruption(
    cosmos: Path, chance: random.Random, tmp_path: Path
) -> None:
    common = (*NEVER, "--model.dropout", "0.5", "--train.local_batch_size", "2", "--train.max_epochs", "1")
    words, own = (arguments(cosmos, tmp_path / name, *common) for name in ("run", "whole")), {"own_dropout": True}
    found = attempts(
        {"words": next(words), "plan": plan("step", chance.randint(1, 11), "SIGUSR1", **own)},
        {"words": arguments(cosmos, tmp_path / "run", "--resume"), "plan": own},
        {"words": next(words), "plan": own},
    )
    assert [each["codes"] for each in found] == [[138], [3], [3]], found
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_the_first_rank_knows_what_another_one_met(cosmos: Path, tmp_path: Path) -> None:
    """A damaged sample, a signal outside of the loop, and a death without a word."""
    copy = tmp_path / "copy"
    shutil.copytree(cosmos, copy)
    two = (*NEVER, "--train.local_batch_size", "1", "--train.max_epochs", "2")
    for path in (copy / "train").glob("*.tfrecord"):
        path.write_bytes(path.read_bytes()[:-20])
    staged = ("--staging.destination", str(tmp_path / "staged"))
    found = attempts(
        {"words": arguments(copy, tmp_path / "bad_data", *two), "world_size": 2},
        {
            "words": arguments(cosmos, tmp_path / "signal", *two, *staged), "world_size": 2,
            "plan": plan("staging", 1, "SIGTERM", 1),
        },
        {
            "words": arguments(cosmos, tmp_path / "rank_lost", *two), "world_size": 2,
            "plan": plan("step", 3, "SIGKILL", 1),
        },
    )  # fmt: skip
    assert [each["codes"] for each in found] == [[2, 2], [143, 143], [1, -9]], found
    causes = {name: RunFolder.open(tmp_path / name).read_summary() for name in ("bad_data", "signal", "rank_lost")}
    assert {name: (each.cause, each.signal) for name, each in causes.items()} == {
        "bad_data": ("bad_data", None), "signal": ("signal", "SIGTERM"), "rank_lost": ("rank_lost", None),
    }  # fmt: skip
    assert "rank 1" in causes["rank_lost"].reason
