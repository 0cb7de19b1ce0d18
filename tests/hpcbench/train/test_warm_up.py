"""What compiles and captures before the clock leaves no trace in a run, and leaves nothing to compile behind it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hpcbench.application import Application, find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.measure.mllog import RunLog
from hpcbench.optim import lamb
from hpcbench.optim.registry import parameter_kinds
from hpcbench.results.run_folder import RunFolder
from hpcbench.skeleton import write_package
from hpcbench.train import run as run_module
from hpcbench.train import warm_up as warm_up_module
from hpcbench.train.checkpoint_io import load_newest
from hpcbench.train.task import Task
from hpcbench.train.training_step import TrainingStep
from tests.hpcbench.optim.compiled_loops import compiled_for, loops_to_compile
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.interrupted import attempts, same_run
from tests.hpcbench.train.rank_processes import RankProcesses
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
DRAWN = ("--model.dropout", "0.5", "--data.augment", "true", "--train.max_epochs", "2", "--train.target", "null")


def same(one: Path, other: Path) -> None:
    assert RunFolder(one).steps.read_text() == RunFolder(other).steps.read_text()
    kept = [load_newest(path / "checkpoints") for path in (one, other)]
    assert kept[0] is not None
    assert kept[1] is not None
    assert all(torch.equal(value, kept[1].model[name]) for name, value in kept[0].model.items())
    states = [each.optimizer["state"] for each in kept if each is not None]
    assert states[0].keys() == states[1].keys()
    for key, values in states[0].items():
        assert all(torch.equal(torch.as_tensor(v), torch.as_tensor(states[1][key][n])) for n, v in values.items())


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lamb"])
def test_a_run_is_the_same_to_the_bit_with_and_without(
    optimizer: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (*DRAWN, "--optim.name", optimizer, "--train.eval_batch_size", "3")
    assert train(tmp_path / "without", *settings) == 0
    took: list[float | None] = []
    real = run_module.warm_up
    monkeypatch.setattr(run_module, "is_due", lambda config, device: True)
    monkeypatch.setattr(run_module, "warm_up", lambda *parts: took.append(real(*parts)) or took[-1])
    assert train(tmp_path / "with", *settings) == 0
    assert len(took) == 1
    assert took[0] is not None
    assert took[0] > 0
    same(tmp_path / "without", tmp_path / "with")


def test_the_peak_includes_replayed_passes(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay allocates nothing, so that torch knows the memory of a pass only from before and during the capture."""
    restarted: list[torch.device] = []
    monkeypatch.setattr(run_module, "is_due", lambda config, device: True)
    monkeypatch.setattr(warm_up_module, "reset_peak_memory", restarted.append)
    for replays, expected in ((True, []), (False, [torch.device("cpu")])):
        monkeypatch.setattr(TrainingStep, "replays", property(lambda step, replays=replays: replays))
        assert (train(tmp_path / str(replays), *DRAWN), restarted) == (0, expected)


@pytest.mark.parametrize("graph", ["graph", "whole_step"])
def test_a_graph_of_the_pass_or_of_the_whole_step_is_replayed(graph: str) -> None:
    step = object.__new__(TrainingStep)
    vars(step).update({"graph": None, "whole_step": None, graph: object()})
    assert step.replays


def test_random_numbers_are_as_before(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs would not show it, since every epoch seeds anew."""
    states: list[tuple[Tensor, object, str]] = []
    drawn: list[bool] = []
    real, real_pass = run_module.warm_up, warm_up_module.training_pass

    def watched(*parts: Any) -> float | None:
        states.append(random_states())
        took = real(*parts)
        states.append(random_states())
        return took

    def drawing(*parts: Any) -> None:
        before = torch.get_rng_state()
        real_pass(*parts)
        drawn.append(not torch.equal(before, torch.get_rng_state()))

    monkeypatch.setattr(run_module, "is_due", lambda config, device: True)
    monkeypatch.setattr(run_module, "warm_up", watched)
    monkeypatch.setattr(warm_up_module, "training_pass", drawing)
    assert train(tmp_path / "run", "--train.max_steps", "1") == 0
    before, after = states
    assert drawn
    assert all(drawn)
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_a_task_checks_batches_of_evaluations_and_none_that_are_made_up(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    counts: list[int] = []
    real = run_module.warm_up

    def watched(*parts: Any) -> float | None:
        took = real(*parts)
        counts.append(len(checked))
        return took

    monkeypatch.setattr(run_module, "is_due", lambda config, device: True)
    monkeypatch.setattr(run_module, "warm_up", watched)
    monkeypatch.setattr(Task, "check_batch", lambda task, model, inputs, target: checked.append(len(inputs)))
    assert train(tmp_path / "run", "--train.max_epochs", "1", "--train.eval_batch_size", "3") == 0
    assert counts == [0]
    assert checked == [3, 3, 3, 1]


def random_states() -> tuple[Tensor, object, str]:
    """Of the generators that everybody shares: torch's, Python's and NumPy's."""
    return torch.get_rng_state(), random.getstate(), str(np.random.get_state(legacy=False))


@pytest.mark.slow
def test_statistics_of_batch_norm_are_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    few = ["--simulate.train_samples", "8", "--simulate.validation_samples", "2"]
    assert main(["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(data), "--processes", "1", *few]) == 0
    known = ["train", "deepcam", "--preset", "smoke", "--data.root", str(data), "--train.seed", "1"]
    words = [*known, "--train.max_epochs", "1", "--train.target", "null", "--train.baselines", "false"]
    assert main([*words, "--run-dir", str(tmp_path / "without")]) == 0
    monkeypatch.setattr(run_module, "is_due", lambda config, device: True)
    assert main([*words, "--run-dir", str(tmp_path / "with")]) == 0
    same(tmp_path / "without", tmp_path / "with")


RANKS = {
    "sharded": ("--parallel.shard_states", "true"),
    "shared statistics": ("--train.batchnorm_group_size", "2"),
    "spatial": ("--parallel.spatial", "2"),
    "reduced": (),
}


@pytest.mark.parametrize("ways", slow_except(["sharded"], RANKS))
@pytest.mark.slow
def test_ranks_whose_last_batches_differ_make_as_many_passes(ways: str, cosmos: Path, tmp_path: Path) -> None:
    """17 samples in batches of 4 on each of two ranks: the last has one sample on the first, and none on the other."""
    sizes = ("--train.local_batch_size", "4", "--samples", "17", "--train.eval_batch_size", "4")
    common = (*RANKS[ways], *sizes, "--train.precision", "64-true", "--train.max_epochs", "2")
    found = attempts(*(
        {"words": arguments(cosmos, tmp_path / name, *common), "world_size": 2, "plan": {"warm_up": name == "with"}}
        for name in ("with", "without")
    ))  # fmt: skip
    assert [each["codes"] for each in found] == [[0, 0], [0, 0]], found
    assert "warmed up in" in found[0]["said"]
    assert "warmed up" not in found[1]["said"]
    same_run(tmp_path / "with", tmp_path / "without")


@pytest.mark.slow
def test_nothing_is_compiled_while_the_clock_runs(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []
    at: dict[str, int] = {}

    def counting(graph: Any, inputs: Any) -> Any:
        compiled.append(len(inputs))
        return graph.forward

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **options: real(model, backend=counting, **options))
    for name in ("run_start", "run_stop"):
        method = getattr(RunLog, name)

        def noting(log: RunLog, *args: Any, _method: Any = method, _name: str = name) -> None:
            at.setdefault(_name, len(compiled))
            _method(log, *args)

        monkeypatch.setattr(RunLog, name, noting)
    # 24 samples in batches of 7: the last has 3; 10 are evaluated by 4, the last two together.
    sizes = ("--train.local_batch_size", "7", "--train.eval_batch_size", "4")
    torch._dynamo.reset()
    assert train(tmp_path / "run", "--train.compile", "true", "--train.max_epochs", "2", *sizes) == 0
    assert at["run_start"] == at["run_stop"] == 4, "training and evaluation, two sizes each"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("--parallel.spatial", "2"), ("--parallel.spatial", "2", "--parallel.activation_checkpointing", "true"),
        ("--train.batchnorm_group_size", "2", "--train.local_batch_size", "1"),
    ],
    ids=["split", "split and recomputed", "batch-norm group"],
)  # fmt: skip
def test_nothing_is_compiled_for_ranks_that_exchange_messages_while_the_clock_runs(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    """Nor where messages are recorded in steps and not in evaluations, and readers read parts of samples."""
    data, few = tmp_path / "data", ("--simulate.train_samples", "3", "--simulate.validation_samples", "2")
    assert main(["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(data), "--processes", "1", *few]) == 0
    words = [
        "train", "deepcam", "--preset", "smoke", "--data.root", str(data), "--run-dir", str(tmp_path / "run"),
        "--model.width_factor", "0.125", "--parallel.threads", "1", "--train.compile", "true",
        "--train.local_batch_size", "2", "--train.max_epochs", "1", "--train.target", "null",
        "--train.baselines", "false", "--train.page", "false", *settings,
    ]  # fmt: skip
    ranks = RankProcesses(2, [words], ("tests.hpcbench.train.compiled_frames:note_frames", [str(tmp_path)]))
    said, _ = ranks.communicate()
    assert ranks.returncode == 0, said
    assert "_dynamo" not in said, "the compiler says what it could not trace, or gave up"
    files = list(tmp_path.glob("frames-*.json"))
    assert len(files) == 2
    for file in files:
        at = json.loads(file.read_text())
        assert at["run_start"] == at["run_stop"]
        assert min(at["run_start"]) > 0


@pytest.mark.skipif(not find_spec("numba"), reason="needs numba (pip install numba)")
@pytest.mark.parametrize("optimizer", ["lamb", "nvlamb"])
@pytest.mark.slow
def test_loops_of_an_optimizer_are_not_compiled_while_the_clock_runs(
    optimizer: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a processor without ``train.compile``, where nothing else is due before the clock."""
    loops, at = loops_to_compile(monkeypatch), dict[str, dict[str, int]]()
    monkeypatch.setattr(lamb, "COMPILED_FROM", 0)
    for name in ("run_start", "run_stop"):
        method = getattr(RunLog, name)

        def noting(log: RunLog, *args: Any, _method: Any = method, _name: str = name) -> None:
            at.setdefault(_name, compiled_for(loops))
            _method(log, *args)

        monkeypatch.setattr(RunLog, name, noting)
    settings = ("--optim.name", optimizer, "--train.max_epochs", "1")
    assert train(tmp_path / "run", *settings) == 0
    used = ["first_loop", "second_loop", "trust", *(["norm_loop"] if optimizer == "nvlamb" else [])]
    assert at["run_start"] == at["run_stop"] == dict.fromkeys(used, 1)
    assert "compiled the optimizer's loops in" in "".join(capsys.readouterr())


@pytest.mark.slow
def test_nothing_of_a_new_application_is_compiled_while_the_clock_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_package("new_waves", tmp_path) / "src"
    found = source / "new_waves-1.0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: new_waves\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text("[hpcbench.apps]\nnew_waves = new_waves:application\n")
    monkeypatch.setenv("PYTHONPATH", str(source), prepend=":")
    data = str(tmp_path / "data")
    few = ("--simulate.train_samples", "40", "--simulate.validation_samples", "10", "--processes", "1")
    train = [
        "train", "new_waves", "--preset", "smoke", "--data.root", data, "--run-dir", str(tmp_path / "run"), "--seed",
        "1", "--parallel.threads", "1", "--train.compile", "true", "--train.max_epochs", "2", "--train.target", "null",
        "--train.page", "false",
    ]  # fmt: skip
    commands = [["data", "simulate", "new_waves", "--preset", "smoke", "--out", data, *few], train]
    prepare = ("tests.hpcbench.train.compiled_frames:note_frames", [str(tmp_path)])
    process = RankProcesses(1, commands, prepare)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "compiled and warmed up in" in said
    (file,) = tmp_path.glob("frames-*.json")
    at = json.loads(file.read_text())
    assert at["run_start"] == at["run_stop"]
    assert at["run_start"][0] == 3, "batches of 16 and 8 are trained, and one of 10 is evaluated"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, with which torch compiles for a processor")
def test_a_compiled_run_is_the_run_that_is_not(cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    batches = ("--train.local_batch_size", "8", "--data.validation_samples", "8")  # of one size: one to compile for
    common = (*DRAWN, *batches, "--train.precision", "32-true")
    found = attempts(*(
        {"words": arguments(cosmos, tmp_path / name, *common, "--train.compile", name)} for name in ("true", "false")
    ))  # fmt: skip
    assert [each["codes"] for each in found] == [[0], [0]], found
    assert "compiled and warmed up in" in found[0]["said"]
    compiled, eager = (RunFolder.open(tmp_path / name).read_steps()["loss"] for name in ("true", "false"))
    assert compiled.to_numpy() == pytest.approx(eager.to_numpy(), rel=1e-4)


@pytest.mark.slow
def test_a_run_without_made_up_samples_says_so_and_trains(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An application's ``shapes`` are optional."""
    monkeypatch.setattr(run_module, "is_due", lambda config, device: True)
    monkeypatch.setattr(
        Application, "has", lambda self, part, has=Application.has: part != "shapes" and has(self, part)
    )
    assert train(tmp_path / "run", "--train.max_epochs", "1") == 0
    said = capsys.readouterr().out
    assert ("not warmed up" in said, "compiled and warmed up" in said) == (True, False)
    assert len(RunFolder(tmp_path / "run").read_steps()) == 3


@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
def test_kernels_are_tried_on_as_many_parameters_as_the_run_has(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compiled for that number, and for the options of each group."""
    application = find_application(app)
    config = resolve(application, "smoke", overrides={"optim.name": "lamb", "optim.weight_decay": "0.01"})
    model, task = application.module("model").build_model(config), application.module("task").build_task(config)
    made: list[Any] = []
    real = warm_up_module.create_optimizer

    def create(*words: Any, **more: Any) -> Any:
        made.append(real(*words, **more))
        return made[-1]

    monkeypatch.setattr(warm_up_module, "create_optimizer", create)
    before = [each.detach().clone() for each in model.parameters()]
    warm_up_module.try_optimizer(config, task, model, torch.device("cpu"))
    run = real(config.optim, task.parameter_groups(model), "cpu", kinds=parameter_kinds(model))
    tried_options, run_options = (
        [{**group, "params": len(group["params"])} for group in each.param_groups] for each in (made[0], run)
    )
    assert tried_options == run_options
    assert len(run_options) > 1
    for tried, real_group in zip(made[0].param_groups, run.param_groups, strict=True):
        assert [each.dim() for each in tried["params"]] == [each.dim() for each in real_group["params"]]
        assert {each.numel() for each in tried["params"]} == {1}
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
