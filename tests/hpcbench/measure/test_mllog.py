"""The official log, judged by the official checker and by a parser that is not ours."""

import errno
import json
import logging
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from mlperf_logging.mllog import mllog as package_mllog

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure import mllog
from hpcbench.measure.mllog import RunLog
from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.measure.mllogs import epoch, keys, parsed, set_clock, started


def test_two_runs_in_one_process_write_only_their_own_lines(tmp_path, capfd):
    before = dict(logging.Logger.manager.loggerDict)
    first, second = started(tmp_path / "a.txt"), started(tmp_path / "b.txt")
    first.run_stop("success")
    second.epoch_start(1)
    second.run_stop("aborted", "stopped by hand")
    assert keys(tmp_path / "a.txt") == ["cache_clear", "init_start", "init_stop", "run_start", "run_stop"]
    assert keys(tmp_path / "b.txt")[-2:] == ["epoch_start", "run_stop"]
    assert capfd.readouterr() == ("", "")
    assert logging.Logger.manager.loggerDict.keys() == before.keys()


def test_every_line_is_on_disk_at_once(tmp_path):
    log = RunLog(tmp_path / "log.txt")
    for count in range(1, 4):
        log.event("train_loss", 0.1 * count, epoch_num=count)
        assert len(parsed(tmp_path / "log.txt")) == count


def test_event_types_are_those_of_the_package(tmp_path):
    log = started(tmp_path / "log.txt")
    epoch(log, 1)
    log.run_stop("success")
    kinds = {
        (entry["key"], entry["event_type"])
        for line in (tmp_path / "log.txt").read_text().splitlines()
        for entry in [json.loads(line.removeprefix(":::MLLOG "))]
    }
    assert {("run_start", "INTERVAL_START"), ("run_stop", "INTERVAL_END"), ("eval_error", "POINT_IN_TIME")} <= kinds
    assert {kind for _, kind in kinds} == {
        package_mllog.constants.INTERVAL_START,
        package_mllog.constants.INTERVAL_END,
        package_mllog.constants.POINT_IN_TIME,
    }


def test_file_and_lineno_name_the_caller_without_a_path(tmp_path):
    log = RunLog(tmp_path / "log.txt")
    log.seed(1234)
    line = parsed(tmp_path / "log.txt")[0]
    assert line.value["metadata"]["file"].endswith("test_mllog.py")
    assert not line.value["metadata"]["file"].startswith("/")
    source = Path(__file__).read_text().splitlines()[line.value["metadata"]["lineno"] - 1]
    assert "log.seed(1234)" in source


def test_other_ranks_write_nothing_but_keep_the_clock(tmp_path, monkeypatch):
    set_clock(monkeypatch, 100.0, 107.5)
    log = RunLog(tmp_path / "log.txt", enabled=False)
    assert log.elapsed_s() == 0
    log.run_start()
    assert log.elapsed_s() == 7.5
    log.run_stop("success")
    assert not (tmp_path / "log.txt").exists()


def test_only_the_first_run_stop_counts_whatever_the_thread(tmp_path):
    log = started(tmp_path / "log.txt")
    barrier = threading.Barrier(8)

    def stop(number: int) -> None:
        barrier.wait()
        log.run_stop("aborted", f"thread {number}")

    threads = [threading.Thread(target=stop, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.run_stop("success")
    log.epoch_stop(1)
    assert keys(tmp_path / "log.txt").count("run_stop") == 1
    assert keys(tmp_path / "log.txt")[-1] == "run_stop"
    assert parsed(tmp_path / "log.txt")[-1].value["metadata"]["status"] == "aborted"


def test_a_target_not_reached_is_an_aborted_run_with_a_reason(tmp_path):
    log = started(tmp_path / "log.txt")
    log.run_stop("target_not_reached", "0.31 after 10 epochs, target 0.25")
    stop = parsed(tmp_path / "log.txt")[-1].value["metadata"]
    assert (stop["status"], stop["reason"]) == ("aborted", "0.31 after 10 epochs, target 0.25")


def test_times_never_go_back_when_the_clock_is_set_back(tmp_path, monkeypatch):
    set_clock(monkeypatch, 50.0, 40.0, 60.0)
    log = RunLog(tmp_path / "log.txt")
    for _ in range(3):
        log.event("train_loss", 1.0)
    assert [line.timestamp for line in parsed(tmp_path / "log.txt")] == [50000, 50000, 60000]


def test_no_line_can_be_mistaken_for_the_batch_size_or_the_metric(tmp_path):
    """The checker of reference convergence points looks for these words anywhere in a line."""
    log = RunLog(tmp_path / "log.txt")
    log.geometry(64, 1, 0, 2)
    log.quality("eval_error", 0.3, 1)
    log.event("note", "eval_accuracy of global_batch_size", detail=["eval_error"])
    log.run_stop("aborted", "global_batch_size too large\n:::MLLOG eval_error")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [json.loads(line[9:])["key"] for line in lines if "global_batch_size" in line] == ["global_batch_size"]
    assert [json.loads(line[9:])["key"] for line in lines if re.search("eval_error|eval_accuracy", line)] == [
        "eval_error"
    ]
    assert len(parsed(tmp_path / "log.txt")) == len(lines)


def test_a_key_that_the_checkers_would_mistake_is_refused(tmp_path):
    log = RunLog(tmp_path / "log.txt")
    with pytest.raises(ValueError, match="old_global_batch_size"):
        log.event("old_global_batch_size", 3)


def test_numpy_values_become_plain_numbers_and_other_objects_are_refused(tmp_path):
    log = RunLog(tmp_path / "log.txt")
    log.event("train_loss", np.float32(0.5), step_num=np.int64(3))
    with pytest.raises(TypeError, match="not JSON serializable"):
        log.event("train_loss", object())
    (line,) = parsed(tmp_path / "log.txt")
    assert line.value["value"] == 0.5
    assert line.value["metadata"]["step_num"] == 3


def test_a_full_disk_raises_where_logging_would_go_on(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "mllog.txt").symlink_to("/dev/full")
    log = RunLog(tmp_path / "mllog.txt")
    with pytest.raises(OSError, match="No space left") as caught:
        log.run_start()
    assert caught.value.errno == errno.ENOSPC


def test_a_full_disk_still_takes_run_stop_from_the_reserve(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run")
    log = started(folder.mllog)
    real = mllog._StrictFileHandler.flush

    def flush(handler):
        if (folder.path / ".reserve").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handler)

    monkeypatch.setattr(mllog._StrictFileHandler, "flush", flush)
    with pytest.raises(OSError, match="No space left"):
        log.epoch_start(1)
    log.run_stop("aborted", "the disk is full")
    assert parsed(folder.mllog)[-1].value["metadata"]["reason"] == "the disk is full"


def test_a_disk_without_a_reserve_does_not_hide_why_a_run_was_aborted(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    for status in ("aborted", "success"):
        path = tmp_path / f"{status}.txt"
        path.symlink_to("/dev/full")
    RunLog(tmp_path / "aborted.txt").run_stop("aborted", "the disk is full")
    with pytest.raises(OSError, match="No space left"):
        RunLog(tmp_path / "success.txt").run_stop("success")


def test_submission_names_what_the_rules_ask_for(tmp_path):
    application = find_application("deepcam")
    config = resolve(application, None, None, {"submission.org": "Somewhere", "submission.platform": "a box"})
    log = RunLog(tmp_path / "log.txt")
    log.submission(config, application)
    assert {line.key: line.value["value"] for line in parsed(tmp_path / "log.txt")} == {
        "submission_benchmark": "deepcam",
        "submission_org": "Somewhere",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": "a box",
    }
