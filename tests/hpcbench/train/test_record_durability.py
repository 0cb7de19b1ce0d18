"""After a crash of the machine at any instant tables and log reach at least as far as the newest checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

from hpcbench.results.checkpoint_files import complete
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.resume_check import missing_events, missing_rows
from hpcbench.train.state import State as RunState
from tests.disk_model import Disk, Event, Recorder, State, materialize

Train = Callable[..., int]
RECORDS = ("mllog.txt", "steps.csv", "epochs.csv")
COMMON = ("--train.local_batch_size", "8", "--train.checkpoint_async", "false", "--train.target", "1e-9")
EPOCHS = 3
STEPS = 3
"""Of an epoch."""


@pytest.fixture
def recorded(train: Train, tmp_path: Path) -> list[Event]:
    """A run that keeps all its checkpoints, as the disk saw it."""
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run")
    with recorder.recording():
        keep = ("--train.keep_checkpoints", str(EPOCHS), "--train.max_epochs", str(EPOCHS))
        assert train(tmp_path / "run", *COMMON, *keep) == 3
    return [event for event in recorder.events if concerns(event, recorder.events)]


def concerns(event: Event, events: list[Event]) -> bool:
    """Whether an event is of a record or of a marker: what crashes do to other files would only multiply the states."""
    names = (*RECORDS, "checkpoints", "")
    files = {each.file for each in events if each.path in RECORDS or (each.to.endswith(".json") and "epoch" in each.to)}
    return event.path in names if event.kind in ("mkdir", "sync folder") else event.file in files


def crashes(events: Iterable[Event]) -> Iterator[tuple[tuple[str, ...], State]]:
    """What crashes behind each of the events leave of the records, with the complete checkpoints; each once."""
    disk, seen = Disk(), set()
    for event in events:
        disk.apply(event)
        for state in disk.crashes():
            markers = tuple(sorted(path for path in state if path.startswith("checkpoints/epoch") and ".json" in path))
            records = {name: state[name] for name in RECORDS if name in state}
            key = (markers, tuple(records.items()))
            if markers and key not in seen:
                seen.add(key)
                yield markers, records


def gaps(events: Iterable[Event], run: Path, scratch: Path) -> list[str]:
    """What records lack after a crash of that which the newest checkpoint has behind it."""
    states = {path.stem: load_state(path) for path in complete(run / "checkpoints")}
    found = []
    for markers, records in crashes(events):
        scratch.mkdir()
        materialize(records, scratch)
        folder, state = RunFolder(scratch), states[Path(markers[-1]).stem]
        lacks = missing_rows(folder, state) or missing_events(folder.mllog, state)
        found += [lacks or "no log"] if lacks or not folder.mllog.exists() else []
        shutil.rmtree(scratch)
    return found


def load_state(path: Path) -> RunState:
    """The state of the run in a checkpoint."""
    return RunState.from_dict(torch.load(path, weights_only=True)["state"])


def test_no_crash_leaves_a_checkpoint_ahead_of_tables_and_log(recorded: list[Event], tmp_path: Path) -> None:
    assert len(list(crashes(recorded))) > 20
    assert gaps(recorded, tmp_path / "run", tmp_path / "crash") == []


@pytest.mark.slow
def test_the_proof_finds_each_sync_that_is_missing(recorded: list[Event], tmp_path: Path) -> None:
    """Of each table and of the log at each checkpoint, and of their names at the first."""
    for name in RECORDS:
        syncs = [number for number, event in enumerate(recorded) if event.kind == "sync" and event.path == name]
        assert len(syncs) == EPOCHS + 1, f"{name} at each checkpoint, and at the end"
        for number in syncs[:-1]:
            assert gaps(recorded[:number] + recorded[number + 1 :], tmp_path / "run", tmp_path / "crash"), name
    unnamed = [event for event in recorded if (event.kind, event.path) != ("sync folder", "")]
    assert gaps(unnamed, tmp_path / "run", tmp_path / "crash")


@pytest.mark.slow
def test_a_run_whose_records_end_before_its_checkpoint_is_not_resumed(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert train(run, *COMMON, "--train.max_epochs", "2") == 3
    capsys.readouterr()
    cuts: dict[str, tuple[str, Callable[[list[str]], str]]] = {
        "steps.csv": (f"lacks step {2 * STEPS}", lambda lines: "".join(lines[:-1])),
        "epochs.csv": (f"lacks the evaluation at step {2 * STEPS}", lambda lines: "".join(lines)[:-9]),
        "mllog.txt": ("lacks the evaluation at epoch 2", without_second_evaluation),
    }
    for name, (problem, cut) in cuts.items():
        whole = (run / name).read_text()
        (run / name).write_text(cut(whole.splitlines(keepends=True)))
        assert train(run, "--resume", "--train.max_epochs", "3") == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"cannot resume: {run / name} {problem}, which is before the checkpoint epoch-0002" in said
        (run / name).write_text(whole)
    with (run / "steps.csv").open("a") as file:
        file.write("3,7,48,\n\0\0\0\0\n2,7")
    assert train(run, "--resume", "--train.max_epochs", "3") == 3
    assert RunFolder.open(run).read_steps()["step"].tolist() == list(range(1, 3 * STEPS + 1))


def without_second_evaluation(lines: list[str]) -> str:
    """The lines of a log up to the second evaluation."""
    evaluated = [number for number, line in enumerate(lines) if '"eval_error"' in line]
    return "".join(lines[: evaluated[1]])
