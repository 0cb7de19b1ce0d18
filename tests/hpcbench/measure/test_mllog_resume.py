"""The official log of a run that was interrupted and goes on."""

import pytest

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure import mllog, mllog_resume
from hpcbench.measure.mllog import RunLog
from staging.errors import InputError
from tests.hpcbench.measure.mllogs import epoch, keys, parsed, resumed_log, set_clock, started


def test_resume_keeps_the_clock_and_logs_repeated_epochs_once(tmp_path, monkeypatch):
    path = tmp_path / "mllog.txt"
    set_clock(monkeypatch, 1000.0)
    log = started(path)
    log.seed(7)
    for number in (1, 2, 3):
        epoch(log, number)
    log.run_stop("aborted", "SIGTERM")
    old = path.read_bytes()

    set_clock(monkeypatch, 5000.0)
    log = resumed_log(path, epoch=2)
    log.cache_clear("again")
    log.init_start()
    log.seed(7)
    log.init_stop()
    log.run_start()
    assert log.elapsed_s() == 4000
    epoch(log, 3)
    log.run_stop("success")

    assert (tmp_path / "mllog-part1.txt").read_bytes() == old
    found = keys(path)
    for key in ("cache_clear", "init_start", "init_stop", "run_start", "run_stop", "seed", "resumed"):
        assert found.count(key) == 1
    assert [line.value["metadata"]["epoch_num"] for line in parsed(path) if line.key == "epoch_start"] == [1, 2, 3]
    resumed = next(line.value for line in parsed(path) if line.key == "resumed")
    assert resumed["value"] == "mllog-part1.txt"
    assert resumed["metadata"]["epoch_num"] == 2
    assert resumed["metadata"]["lines_dropped"] == 6  # five of epoch 3, and run_stop


def test_a_second_resume_keeps_both_old_logs(tmp_path):
    path = tmp_path / "mllog.txt"
    epoch(started(path), 1)
    resumed_log(path).run_stop("aborted", "SIGTERM")
    log = resumed_log(path)
    log.run_stop("success")
    assert {p.name for p in tmp_path.iterdir()} == {"mllog.txt", "mllog-part1.txt", "mllog-part2.txt"}
    assert keys(path).count("resumed") == 2
    assert keys(path).count("run_stop") == 1


def test_resume_drops_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "mllog.txt"
    epoch(started(path), 1)
    with path.open("a") as file:
        file.write(':::MLLOG {"namespace": "", "time_ms": 17')
    resumed_log(path).run_stop("success")
    assert keys(path)[-2:] == ["resumed", "run_stop"]


def test_a_value_that_changed_on_resume_is_logged_so_that_the_checker_sees_it(tmp_path):
    log = started(tmp_path / "mllog.txt")
    log.geometry(64, 1, 0, 2)
    log.close()
    log = resumed_log(tmp_path / "mllog.txt")
    log.geometry(128, 1, 0, 2)
    assert keys(tmp_path / "mllog.txt").count("global_batch_size") == 2
    assert keys(tmp_path / "mllog.txt").count("number_of_nodes") == 1


def test_a_run_that_ended_before_its_clock_starts_a_new_log(tmp_path):
    log = RunLog(tmp_path / "mllog.txt")
    log.init_start()
    log.run_stop("aborted", "no dataset")
    log = resumed_log(tmp_path / "mllog.txt")
    log.init_start()
    log.init_stop()
    log.run_start()
    assert keys(tmp_path / "mllog.txt") == ["init_start", "init_stop", "run_start"]


def test_other_ranks_resume_without_touching_the_files(tmp_path):
    started(tmp_path / "mllog.txt").close()
    log = resumed_log(tmp_path / "mllog.txt", enabled=False)
    assert log.elapsed_s() >= 0
    assert log.run_start_ms is not None
    assert [p.name for p in tmp_path.iterdir()] == ["mllog.txt"]


def test_a_log_that_is_to_be_resumed_stays_as_it_is_until_the_run_continues(tmp_path):
    path = tmp_path / "mllog.txt"
    log = started(path)
    epoch(log, 1)
    log.run_stop("aborted", "SIGTERM")
    before = path.read_bytes()
    log = RunLog.resume(path, epoch=1)
    assert log.resumed
    assert [p.name for p in tmp_path.iterdir()] == ["mllog.txt"]
    assert path.read_bytes() == before
    log.rewrite()
    assert keys(path)[-1] == "resumed"
    assert (tmp_path / "mllog-part1.txt").read_bytes() == before


def test_resume_without_a_log_says_so(tmp_path):
    with pytest.raises(InputError, match="no run to resume; leave out --resume"):
        RunLog.resume(tmp_path / "mllog.txt")


def test_resume_of_a_finished_run_says_so(tmp_path):
    started(tmp_path / "mllog.txt").run_stop("success")
    with pytest.raises(InputError, match="has reached its target"):
        RunLog.resume(tmp_path / "mllog.txt")


def test_resume_module_counts_epochs_it_keeps(tmp_path):
    log = started(tmp_path / "mllog.txt")
    for number in (1, 2):
        epoch(log, number)
    old = mllog_resume.read_old(tmp_path / "mllog.txt", None)
    assert (old.epoch, old.dropped, old.part) == (2, 0, "mllog-part1.txt")


@pytest.mark.parametrize(("platform", "second"), [("", "node2"), ("a box", "node1")])
def test_a_system_without_a_name_keeps_its_first_host_when_rank_0_moves(tmp_path, monkeypatch, platform, second):
    application = find_application("deepcam")
    config = resolve(application, None, None, {"submission.platform": platform})
    monkeypatch.setattr(mllog.platform, "node", lambda: "node1")
    log = started(tmp_path / "mllog.txt")
    log.submission(config, application)
    log.close()
    monkeypatch.setattr(mllog.platform, "node", lambda: second)
    RunLog.resume(tmp_path / "mllog.txt").submission(config, application)
    named = [line.value["value"] for line in parsed(tmp_path / "mllog.txt") if line.key == "submission_platform"]
    assert named == [platform or "node1"]
