"""Training on shards, with ranks on simulated nodes: every sample once an epoch, and what one process would compute."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hpcbench.cli.main import main
from hpcbench.config.schema import RunConfig
from hpcbench.data.sampler import Indices, Shards, epoch_batches
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.build import check_shards
from hpcbench.train.node_shard import training_files
from hpcbench.train.ranks import on_simulated_nodes
from hpcbench.train.setup import seed_of
from hpcbench.train.shard_staging import check_homes, shared_patterns
from staging.errors import InputError
from staging.ledger.manifest import load_records
from staging.ranks.launch import Launch
from staging.source.listing import Selection
from tests.hpcbench.train.conftest import arguments, start

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
FIXED = ("--train.precision", "64-true", "--model.dropout", "0.5", "--data.augment", "--train.target", "1e-9")
ODD = ("--data.train_samples", "23", "--optim.lr", "0.001")


def ranks(data: Path, folder: Path, *settings: str) -> None:
    """Train on two ranks, each a node of its own; exit code 3, as no target is reached."""
    run = start(data, folder, *settings, "--parallel.devices", "2", "--parallel.simulated_nodes", "2")
    said, _ = run.communicate()
    assert run.returncode == 3, said


def losses(folder: Path) -> list[float]:
    return [float(loss) for loss in RunFolder.open(folder).read_steps()["loss"]]


def homes(staged: Path, data: Path) -> Indices:
    """The node of each training sample, from what the manifests say."""
    names = sorted(path.name for path in (data / "train").iterdir())
    home = np.full(len(names), -1)
    for node, folder in enumerate(sorted(staged.iterdir())):
        sources = {record.source for record in load_records(folder)}
        assert {name for name in sources if name.startswith("validation/")} == {
            f"validation/{path.name}" for path in (data / "validation").iterdir()
        }
        for name in sources:
            if name.startswith("train/"):
                assert home[names.index(Path(name).name)] == -1, "a sample on two nodes"
                home[names.index(Path(name).name)] = node
    return home


@pytest.mark.slow
def test_shards_train_as_one_process_does_on_the_same_samples(
    train: Train, cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = ("--staging.destination", str(tmp_path / "local" / "{node}"), "--staging.placement", "shard")
    common = (*FIXED, *ODD, "--train.max_epochs", "2")
    ranks(cosmos, tmp_path / "two", *common, *staged, "--train.local_batch_size", "4")
    home = homes(tmp_path / "local", cosmos)
    assert (sorted(set(home[:23])), home[23]) == ([0, 1], -1), "23 samples are asked for, of 24"
    shards = Shards(home[:23], (0, 1))
    seen: list[Indices] = []

    def together(samples: int, seed: int, epoch: int, *_: object) -> list[list[Indices]]:
        parts = [epoch_batches(samples, seed, epoch, [rank], 2, 4, "keep", shards)[0] for rank in range(2)]
        seen.extend(both := [np.concatenate(pair) for pair in zip(*parts, strict=True)])
        return [both]

    monkeypatch.setattr("hpcbench.train.data_path.epoch_batches", together)
    assert train(tmp_path / "one", *common, "--train.local_batch_size", "8") == 3
    assert sorted(np.concatenate(seen)) == sorted([*range(23), *range(23)])
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-9)
    one, two = (RunFolder.open(tmp_path / name).read_summary() for name in ("one", "two"))
    assert two.metrics == pytest.approx(one.metrics, rel=1e-7)
    assert (two.samples, two.train_samples, two.nodes, two.ranks_per_node) == (46, 23, 2, 1)


@pytest.mark.slow
def test_one_node_trains_on_its_shard_as_without(train: Train, tmp_path: Path) -> None:
    for placement in ("replicate", "shard"):
        staged = ("--staging.destination", str(tmp_path / placement / "local"), "--staging.placement", placement)
        assert train(tmp_path / placement / "run", *FIXED, *ODD, *staged, "--train.max_epochs", "2") == 3
    assert losses(tmp_path / "shard" / "run") == losses(tmp_path / "replicate" / "run")
    one, two = (RunFolder.open(tmp_path / name / "run").read_summary().metrics for name in ("replicate", "shard"))
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["tfrecord-to-npy", ""])
def test_a_resumed_run_goes_on_with_the_shards_of_its_epoch(cosmos: Path, tmp_path: Path, transform: str) -> None:
    shards = ("--staging.placement", "shard", "--staging.reshuffle", "true", "--staging.transform", transform)
    common = (*FIXED, *shards, "--train.local_batch_size", "3")
    where = ("--staging.destination", str(tmp_path / "whole" / "{node}"))
    ranks(cosmos, tmp_path / "one", *common, *where, "--train.max_epochs", "4")
    where = ("--staging.destination", str(tmp_path / "parts" / "{node}"))
    ranks(cosmos, tmp_path / "two", *common, *where, "--train.max_epochs", "2")
    ranks(cosmos, tmp_path / "two", "--resume", "--train.max_epochs", "4")
    assert losses(tmp_path / "two") == losses(tmp_path / "one")
    whole, parts = (homes(tmp_path / name, cosmos) for name in ("whole", "parts"))
    assert (whole == parts).all()
    staged = json.loads((tmp_path / "one" / "staging.json").read_text())
    assert staged["reshuffles"] == 3
    events = [line for line in (tmp_path / "one" / "mllog.txt").read_text().splitlines() if '"reshuffle"' in line]
    assert [json.loads(event.split(" ", 1)[1])["metadata"]["epoch_num"] for event in events] == [2, 3, 4]
    assert staged["reshuffle_bytes"] == sum(json.loads(e.split(" ", 1)[1])["metadata"]["bytes"] for e in events) > 0


def unseeded(data: Path, folder: Path, *settings: str) -> list[str]:
    """The command line of a short run that stages shards and draws its seed."""
    words = arguments(data, folder, "--staging.placement", "shard", "--train.max_epochs", "1", *settings)
    at = words.index("--seed")
    return words[:at] + words[at + 2 :]


@pytest.mark.slow
def test_an_attempt_that_starts_again_keeps_the_seed_and_so_the_shards(
    cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, staged = tmp_path / "run", ("--staging.destination", str(tmp_path / "local"))
    assert main(unseeded(cosmos, folder, *staged)) == 0
    seed = RunFolder.open(folder).read_summary().seed
    shutil.rmtree(folder / "checkpoints")
    assert main(unseeded(cosmos, folder, *staged, "--resume-or-start")) == 0
    assert RunFolder.open(folder).read_summary().seed == seed
    assert json.loads((folder / "staging.json").read_text())["files"] == 0
    for path in folder.iterdir():  # an attempt that was killed before it wrote anything
        if path.name != "attempts":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert main(unseeded(cosmos, folder, *staged, "--resume-or-start")) == 0
    assert RunFolder.open(folder).read_summary().seed == seed
    other = [*unseeded(cosmos, tmp_path / "other", *staged), "--seed", str(seed + 1)]
    capsys.readouterr()
    assert main(other) == 2
    assert f"holds a staging with seed {seed}, not {seed + 1}; give --seed {seed}, remove" in capsys.readouterr().err


def test_what_is_no_seed_of_an_earlier_attempt_is_not_taken(tmp_path: Path) -> None:
    for number, text in enumerate(("train: {seed: 7}", "train: {seed: true}", "train: []", "{", "train: {seed: -1}")):
        folder = tmp_path / "attempts" / str(9 + number)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(text)
    assert seed_of(tmp_path) == 7
    (tmp_path / "config.yaml").write_text("train: {seed: 8}")
    assert seed_of(tmp_path) == 8
    assert 0 <= seed_of(tmp_path / "none") < 2**31


@pytest.mark.slow
def test_another_placement_is_another_run(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.placement", "shard")
    assert train(tmp_path / "run", *FIXED, *staged, "--train.max_epochs", "1") == 3
    more = ("--resume", "--train.max_epochs", "2", "--staging.placement", "replicate")
    assert train(tmp_path / "run", *more) == 2
    assert "staging.placement shard, this run has replicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("--staging.reshuffle", "true"), "staging.reshuffle moves shards; set staging.placement shard"),
        (("--staging.contiguous", "true"), "staging.contiguous is a way to cut shards; set staging.placement shard"),
        (
            ("--staging.placement", "shard", "--staging.reshuffle", "true", "--staging.contiguous", "true"),
            "staging.reshuffle draws shards, and staging.contiguous shards are not drawn; set one false",
        ),
        (("--staging.placement", "shard"), "staging.placement shard needs staging.destination"),
        (("--parallel.simulated_nodes", "0"), "parallel.simulated_nodes (0) must be at least 1"),
        (("--parallel.simulated_nodes", "2"), "parallel.simulated_nodes (2) must be at most the number of ranks (1)"),
    ],
)
def test_settings_that_do_not_go_together(
    train: Train, tmp_path: Path, settings: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", *settings) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_set_whose_files_are_not_known_is_refused() -> None:
    application = SimpleNamespace(
        name="toy", module=lambda name: SimpleNamespace(files_of_split=lambda *_: [Path("a")])
    )
    with pytest.raises(InputError, match="toy does not say which file a sample is in; give its dataset a list `files`"):
        training_files(application, RunConfig(), [1, 2, 3])  # type: ignore[arg-type]
    assert training_files(application, RunConfig(), [1]) == [Path("a")]  # type: ignore[arg-type]


def test_a_shard_that_fills_no_batch_is_refused_where_batches_must_be_full() -> None:
    config = RunConfig()
    config.data.last_batch, config.train.local_batch_size = "drop", 2
    shards = Shards(np.array([0, 0, 0, 0, 1, 1, 1]), (0, 1, 1))
    with pytest.raises(InputError, match="a node has 3 training samples where its ranks take 4 at a time"):
        check_shards(config, shards)
    config.data.last_batch = "keep"
    check_shards(config, shards)


def test_a_node_without_a_sample_is_refused() -> None:
    words = "the training set of 3 samples leaves 2 of 4 nodes without one; use fewer nodes or more samples"
    with pytest.raises(InputError, match=words):
        check_homes(RunConfig(), Shards(np.array([0, 2, 2]), (0, 1, 2, 3)))
    check_homes(RunConfig(), Shards(np.array([0, 2, 1, 3]), (0, 1, 2, 3)))


def test_ranks_are_dealt_to_simulated_nodes_in_runs() -> None:
    dealt = [on_simulated_nodes(Launch(rank, 5, rank, 5), 2) for rank in range(5)]
    assert [(each.node_rank, each.local_rank, each.local_size, each.nodes) for each in dealt] == [
        (0, 0, 3, 2), (0, 1, 3, 2), (0, 2, 3, 2), (1, 0, 2, 2), (1, 1, 2, 2),
    ]  # fmt: skip


def test_patterns_of_what_every_node_gets() -> None:
    sharded = ["train/a", "train/b"]
    names = [*sharded, "validation/c", "validation/d", "stats[1].h5", "train/README", "extra/deep/e"]
    patterns = shared_patterns(names, sharded)
    assert patterns == ("validation/*", "stats[[]1].h5", "train/README", "extra/deep/*")
    wanted = Selection(include=patterns).matches([name.encode() for name in names])
    assert [name for name, hit in zip(names, wanted, strict=True) if hit] == names[2:]
