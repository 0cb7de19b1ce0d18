"""The run folder: nothing is overwritten, nothing is half written, and what is missing is named."""

import csv
import json
import math
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.config.bounds import LARGEST
from hpcbench.phase_names import PHASES
from hpcbench.results.checkpoint_files import write_marker
from hpcbench.results.run_folder import RunFolder, create_default, default_path, write_atomic
from hpcbench.results.summary import Summary
from staging.errors import DataError, InputError
from tests.disk_model import Disk, Recorder

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "note").write_text("mine")
    with pytest.raises(InputError, match=r"exists and is not empty; give another --run-dir"):
        RunFolder.create(tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "epoch-0001-step-00000003.pt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    write_marker(checkpoint, {})
    with pytest.raises(InputError, match=r"exists and is not empty; add --resume .* or give another --run-dir"):
        RunFolder.create(tmp_path / "run")
    assert (tmp_path / "run" / "note").read_text() == "mine"


def test_an_empty_folder_is_used(tmp_path):
    assert RunFolder.create(tmp_path).path == tmp_path


def test_a_folder_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be made \(Not a directory\); give another --run-dir"):
        RunFolder.create(tmp_path / "file" / "run")


def test_opening_names_what_is_missing(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(InputError, match=r"lacks config\.yaml and mllog\.txt"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(InputError, match=r"lacks summary\.json;"):
        RunFolder.open(tmp_path, needs=("config.yaml", "summary.json"))
    (tmp_path / "mllog.txt").write_text("")
    assert RunFolder.open(tmp_path).mllog.exists()


def test_its_files_are_those_that_the_architecture_lists(tmp_path):
    listed = set(re.findall(r"^\| `([\w.]+?)/?` \|", ARCHITECTURE.read_text(), re.MULTILINE))
    named = {path.name for key, path in vars(RunFolder(tmp_path)).items() if key != "path"}
    assert named <= listed


def test_config_and_json_are_read_back_by_other_readers(tmp_path):
    folder = RunFolder.create(tmp_path)
    config = {"train": {"lr": 0.1, "milestones": [1, 2]}, "name": "a: b"}
    folder.write_config(config)
    folder.write_json("staging.json", {"rate": math.inf, "files": [1.5, math.nan]})
    assert yaml.safe_load(folder.config.read_text()) == config
    assert json.loads(folder.staging.read_text()) == {"rate": None, "files": [1.5, None]}


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_atomic(path, "old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(OSError, match="I/O error"):
        write_atomic(path, "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"summary.json": "old"}


def test_a_full_disk_is_met_with_the_reserve(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path)
    real = os.fsync

    def fsync(descriptor):
        if (tmp_path / ".reserve").exists():
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder.write_json("summary.json", {"status": "aborted"})
    assert json.loads(folder.summary.read_text()) == {"status": "aborted"}
    assert not (tmp_path / ".reserve").exists()


def test_rows_are_appended_under_one_header_and_resume_drops_later_ones(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.append_rows("steps.csv", [{"epoch": 1, "step": 1, "loss": 0.5}, {"epoch": 1, "step": 2, "loss": 0.4}])
    folder.append_rows("steps.csv", [])
    folder.append_rows("steps.csv", [{"loss": 0.3, "step": 3, "epoch": 2}])
    assert folder.steps.read_text() == "epoch,step,loss\n1,1,0.5\n1,2,0.4\n2,3,0.3\n"
    with folder.steps.open("a") as file:
        file.write("2,4")  # cut off
    folder.truncate_rows("steps.csv", 2)
    assert folder.steps.read_text() == "epoch,step,loss\n1,1,0.5\n1,2,0.4\n"
    folder.append_rows("steps.csv", [{"epoch": 2, "step": 3, "loss": 0.25}])
    assert folder.read_steps()["loss"].tolist() == [0.5, 0.4, 0.25]


def test_resume_keeps_rows_whose_cells_need_quotes(tmp_path):
    folder, table = RunFolder.create(tmp_path), tmp_path / "layers.csv"
    cells = ["conv, first", 'the "last"', "two\nlines", "a\u2028b", ""]
    folder.append_rows("layers.csv", [{"layer, name": cell, "step": step} for step, cell in enumerate(cells)])
    whole = table.read_bytes()
    for cut in (b"x,5", b'"x', b'"two\n', b'"two\nlines",5'):
        table.write_bytes(whole + cut)
        folder.truncate_rows("layers.csv", 9)
        assert table.read_bytes() == whole, cut
    assert folder.steps_of("layers.csv") == set(range(5))
    folder.truncate_rows("layers.csv", 2)
    folder.append_rows("layers.csv", [{"layer, name": "conv, first", "step": 3}])
    with table.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["layer, name", "step"], *([cell, str(step)] for step, cell in enumerate(cells[:3])), ["conv, first", "3"],
        ]  # fmt: skip


def test_a_table_without_steps_stays_as_it_is(tmp_path):
    folder, table = RunFolder.create(tmp_path), tmp_path / "layers.csv"
    folder.append_rows("layers.csv", [{"layer": "conv", "size": 3}])
    before = table.read_bytes()
    folder.truncate_rows("layers.csv", 0)
    assert (table.read_bytes(), folder.steps_of("layers.csv")) == (before, set())


def test_a_row_with_other_columns_is_refused(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.append_rows("steps.csv", [{"step": 1}])
    with pytest.raises(ValueError, match="has the columns"):
        folder.append_rows("steps.csv", [{"step": 2, "loss": 1.0}])


def test_truncating_a_table_that_is_missing_or_cut_in_its_header(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.truncate_rows("steps.csv", 3)
    folder.steps.write_text("epoch,st")
    folder.truncate_rows("steps.csv", 3)
    assert not folder.steps.exists()


def test_tables_that_cannot_be_read_say_so(tmp_path):
    folder = RunFolder.create(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        folder.read_epochs()
    folder.epochs.write_text("")
    with pytest.raises(DataError, match="is not a table"):
        folder.read_epochs()


@pytest.mark.parametrize("taken", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_default_path_is_new_each_time(taken, tmp_path):
    first = default_path("cosmoflow", "laptop", tmp_path)
    match = re.fullmatch(r"cosmoflow-laptop-(\d{8}-\d{6})", first.name)
    assert match
    stamp = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    assert abs((stamp - datetime.now(UTC)).total_seconds()) < 60
    for count in range(60):  # the clock may move on to the next second meanwhile
        first = default_path("cosmoflow", "laptop", tmp_path)
        taken(first)
        second = default_path("cosmoflow", "laptop", tmp_path)
        if second.name == f"{first.name}-2":
            break
        assert count < 59


def test_runs_that_start_within_a_second_get_folders_of_their_own(tmp_path, monkeypatch):
    """Both find the name free: a run makes its folder long after it began, since bad input leaves nothing behind."""
    names = iter(["run", "run", "run-2"])
    monkeypatch.setattr("hpcbench.results.run_folder.default_path", lambda *_: tmp_path / "runs" / next(names))
    folders = [create_default("cosmoflow", "laptop", tmp_path) for _ in range(2)]
    assert [folder.path.name for folder in folders] == ["run", "run-2"]
    (tmp_path / "file").touch()
    monkeypatch.setattr("hpcbench.results.run_folder.default_path", lambda *_: tmp_path / "file" / "run")
    with pytest.raises(InputError, match="cannot be made"):
        create_default("cosmoflow", "laptop", tmp_path)


def test_the_summary_has_the_keys_of_the_architecture():
    block = re.search(r"`summary\.json`:\n\n```text\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)
    assert block
    text = re.sub(r"\([^)]*\)|\{[^}]*\}", "", block[1])
    listed = {key.strip() for key in text.replace("\n", " ").split(",")} - {""}
    assert listed == set(vars(Summary("a", "b", "c")))
    phases = re.search(r"phases_s \{([^}]*)\}", block[1])
    assert phases
    assert tuple(name.strip() for name in phases[1].split(",")) == PHASES


numbers = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=50)
@given(
    st.builds(
        Summary,
        application=st.text(),
        title=st.text(),
        preset=st.text(),
        status=st.sampled_from(["success", "target_not_reached", "aborted"]),
        reason=st.text(),
        target=st.none() | numbers,
        metrics=st.dictionaries(st.text(), numbers),
        baselines=st.dictionaries(st.text(), st.dictionaries(st.text(), numbers)),
        seed=st.integers(0, LARGEST),
    )
)
def test_a_summary_survives_its_file(summary):
    assert Summary.from_json(summary.to_json()) == summary


def test_a_seed_that_64_bits_do_not_hold_is_refused():
    assert Summary.from_json(Summary("a", "b", "c", seed=LARGEST).to_json()).seed == LARGEST
    with pytest.raises(DataError, match=r"seed \(9223372036854775808\) must be at most 9223372036854775807"):
        Summary.from_json(Summary("a", "b", "c", seed=LARGEST + 1).to_json())


def test_numbers_that_are_not_finite_become_null_and_come_back_as_nan():
    text = Summary("a", "b", "c", best=math.inf, metrics={"mae": math.nan}).to_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    back = Summary.from_json(text)
    assert back.best is None
    assert math.isnan(back.metrics["mae"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", r"x\.json: is not JSON .*; the run that writes it may not have ended"),
        ("[]", "has no key 'schema'"),
        ('{"schema": 2}', "has schema 2, this version reads 1; use the hpcbench that wrote it"),
        ('{"schema": 1, "title": "t"}', "lacks the keys application, preset"),
    ],
)
def test_a_summary_that_cannot_be_read_says_why(text, problem):
    with pytest.raises(DataError, match=problem):
        Summary.from_json(text, "x.json")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("resumed", "x", r"resumed \(x\) must be a whole number"),
        ("resumed", True, r"resumed \(true\) must be a whole number"),
        ("warm_samples_per_s", "fast", r"warm_samples_per_s \(fast\) must be a number"),
        ("warm_samples_per_s", 10**400, "warm_samples_per_s .a number of more than 60 digits. must be"),
        ("seed", "x", r"seed \(x\) must be a whole number"),
        ("seed", 10**400, "seed .a number of more than 60 digits. must be"),
        ("status", "done", "status .done. must be one of success, target_not_reached, aborted"),
        ("epochs", math.nan, r"epochs \(nan\) must be a number"),
        ("device", ["cpu"], r"device \(\[cpu\]\) must be a text"),
        ("slow_nodes", "n1", r"slow_nodes \(n1\) must be a list"),
        ("phases_s", {"init": "x"}, r"phases_s.init \(x\) must be a number"),
        ("metrics", [1], r"metrics \(\[1\]\) must be a mapping of names to values"),
        ("metrics", {"mae": "low"}, r"metrics.mae \(low\) must be a number or null"),
        ("metrics", {"mae": -(10**400)}, r"metrics.mae .* must be a number or null"),
        ("baselines", {"mean": 1}, r"baselines.mean \(1\) must be a mapping of names to values"),
        ("nodes", 0, r"nodes \(0\) must be at least 1"),
        ("spatial", "2x", r"parallel.spatial \(2x\) must be a number of ranks such as 4"),
    ],
)
def test_a_value_that_a_summary_cannot_have_is_named(key, value, problem):
    values = json.loads(Summary("a", "b", "c").to_json()) | {key: value}
    with pytest.raises(DataError, match=rf"^x\.json: is damaged \({problem}.*\); restore it, or leave the run out$"):
        Summary.from_json(json.dumps(values), "x.json")


def test_a_summary_that_is_nested_too_deeply_is_one_line():
    with pytest.raises(DataError, match=r"^x\.json: is not JSON \(maximum recursion depth exceeded"):
        Summary.from_json("[" * 100_000, "x.json")


def test_the_summary_of_a_folder(tmp_path):
    folder = RunFolder.create(tmp_path)
    with pytest.raises(DataError, match="the run may not have finished"):
        folder.read_summary()
    folder.write_summary(Summary("cosmoflow", "t", "smoke", epochs=3))
    assert folder.read_summary().epochs == 3


def test_what_was_written_atomically_outlives_a_crash(tmp_path: Path) -> None:
    """At every instant the old text or the new, and from the return on the new."""
    path = tmp_path / "summary.json"
    recorder = Recorder(tmp_path)
    with recorder.recording():
        for text in ("old", "new"):
            write_atomic(path, text)
            recorder.note(text.encode())
    disk, last = Disk(), None
    for event in recorder.events:
        disk.apply(event)
        last = event.note or last
        found = {state.get(path.name) for state in disk.crashes()}
        assert found <= {last, *([None] if last is None else []), b"old" if last is None else b"new"}
    assert last == b"new"
