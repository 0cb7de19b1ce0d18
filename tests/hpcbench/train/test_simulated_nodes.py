"""One process that simulates ranks on simulated nodes trains as these would after a real staging of shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.train.conftest import arguments, train_in_ranks

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
# 23 samples: nodes and ranks have unequal parts, and some are done before others.
COMMON = (
    "--train.precision", "64-true", "--model.dropout", "0.5", "--data.augment", "true", "--data.train_samples", "23",
    "--train.local_batch_size", "2", "--train.max_epochs", "3",
)  # fmt: skip
SHARD = ("--staging.placement", "shard")
PLACEMENTS = {
    "shard": (*SHARD, "--parallel.simulated_nodes", "3"),
    "reshuffle": (*SHARD, "--parallel.simulated_nodes", "2", "--staging.reshuffle", "true"),
    "dropping": (*SHARD, "--parallel.simulated_nodes", "2", "--data.last_batch", "drop"),
}


@pytest.fixture(scope="module")
def staged(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each placement on four ranks, which bring their shards to the nodes."""
    base = tmp_path_factory.mktemp("staged")
    train_in_ranks(
        4,
        [
            arguments(
                cosmos, base / name, *COMMON, *settings, "--staging.destination", str(base / "local" / name / "{node}")
            )
            for name, settings in PLACEMENTS.items()
        ],
    )
    return base


def losses(folder: Path) -> list[float]:
    return [float(loss) for loss in RunFolder.open(folder).read_steps()["loss"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACEMENTS)
def test_simulated_shards_train_as_staged_ones(name: str, staged: Path, train: Train, tmp_path: Path) -> None:
    simulated = ("--parallel.simulated_ranks", "4")
    assert train(tmp_path / "run", *COMMON, *PLACEMENTS[name], *simulated) == 0
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(staged / name), rtol=1e-9)
    one, other = (RunFolder.open(folder).read_summary() for folder in (tmp_path / "run", staged / name))
    assert one.metrics == pytest.approx(other.metrics, rel=1e-9)
    assert (one.samples, one.global_batch_size) == (other.samples, other.global_batch_size)
    assert (one.world_size, one.nodes, other.world_size) == (1, 1, 4)
    assert not (tmp_path / "run" / "staging.json").exists()
    keys = {line.split('"key": "')[1].split('"')[0] for line in (staged / name / "mllog.txt").read_text().splitlines()}
    own = {
        line.split('"key": "')[1].split('"')[0] for line in (tmp_path / "run" / "mllog.txt").read_text().splitlines()
    }
    assert keys - own <= {"staging_start", "staging_stop", "reshuffle"}


@pytest.mark.slow
def test_real_ranks_need_not_stage_either(staged: Path, cosmos: Path, tmp_path: Path) -> None:
    commands = []
    for name, simulated in (("shard", ()), ("reshuffle", ("--parallel.simulated_ranks", "2"))):
        commands.append(arguments(cosmos, tmp_path / name, *COMMON, *PLACEMENTS[name], *simulated))
    train_in_ranks(4, commands[:1])
    train_in_ranks(2, commands[1:])
    for name in ("shard", "reshuffle"):
        np.testing.assert_allclose(losses(tmp_path / name), losses(staged / name), rtol=1e-9)


@pytest.mark.slow
def test_placement_changes_the_order(staged: Path, train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", *COMMON, "--parallel.simulated_ranks", "4", "--parallel.simulated_nodes", "3") == 0
    replicated = losses(tmp_path / "run")
    assert all(abs(losses(staged / name)[0] / replicated[0] - 1) > 1e-6 for name in PLACEMENTS)
    assert losses(staged / "shard")[:3] != losses(staged / "reshuffle")[:3]


@pytest.mark.slow
def test_a_resumed_run_draws_the_same_homes(staged: Path, train: Train, tmp_path: Path) -> None:
    simulated = (*PLACEMENTS["reshuffle"], "--parallel.simulated_ranks", "4")
    assert train(tmp_path / "run", *COMMON, *simulated, "--train.target", "1e-9", "--train.max_epochs", "1") == 3
    assert train(tmp_path / "run", "--resume", "--train.max_epochs", "3") == 3
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(staged / "reshuffle"), rtol=1e-9)
    other = ("--resume", "--train.max_epochs", "4", "--parallel.simulated_nodes", "4")
    assert train(tmp_path / "run", *other) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            SHARD,
            "staging.placement shard needs staging.destination, a folder on each node, or parallel.simulated_nodes",
        ),
        (
            (*SHARD, "--staging.destination", "x", "--parallel.simulated_ranks", "2"),
            "staging.placement shard with parallel.simulated_ranks simulates the nodes, too; leave out",
        ),
        (
            (*SHARD, "--parallel.simulated_nodes", "1", "--staging.transform", "gunzip"),
            "staging.placement shard without staging.destination moves no file; leave out staging.transform gunzip",
        ),
        (
            (*SHARD, "--parallel.simulated_nodes", "5", "--parallel.simulated_ranks", "4"),
            "parallel.simulated_nodes (5) must be at most the number of ranks (4)",
        ),
    ],
)
def test_settings_that_do_not_go_together(
    train: Train, tmp_path: Path, settings: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", *settings) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
