"""Logs of the real logger and of published rounds, under the official rules and those beyond them."""

import json
import logging
import shutil
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure.compliance import RULESETS, check_log, run_official
from hpcbench.measure.mllog import RunLog
from hpcbench.optim.recipes import RECIPES
from hpcbench.optim.scaling import scale_to_batch
from staging.errors import DataError, InputError

LOGS = Path(__file__).parents[2] / "data" / "logs"
COSMOFLOW, DEEPCAM, OLD = (
    LOGS / f"{name}.txt" for name in ("v1.0-nvidia-cosmoflow", "v1.0-nvidia-deepcam", "v0.7-fujitsu-deepcam")
)
PUBLISHED = {"cosmoflow": (524288, 65536, 512), "deepcam": (121266, 15158, 128)}
"""Training and validation samples of the closed division, and the batch of the preset."""


def drive(
    path: Path,
    name: str,
    preset: str = "mlperf",
    scores: tuple[float, ...] = (),
    staging: str = "timed",
    target: float | None = None,
    batch: int | None = None,
    **overrides: str,
) -> Path:
    """Write the log of a run with the real logger, tasks and presets, and a metric that follows ``scores``."""
    application = find_application(name)
    config = resolve(application, preset, None, {key.replace("__", "."): value for key, value in overrides.items()})
    task = application.module("task").build_task(config)
    train, evaluation, usual = PUBLISHED[name]
    batch = usual if batch is None else batch
    scale_to_batch(config, batch)
    log = RunLog(path)
    log.cache_clear("dropped the dataset's pages from the page cache of each node")
    log.init_start()
    log.submission(config, application)
    log.geometry(batch, 16, 4, 64)
    log.samples(train, evaluation)
    log.seed(3141592653)
    log.quality_target(config.train.target if target is None else target)
    log.hyperparameters(task.log_keys(steps_per_epoch=-(-train // batch)))
    if staging == "before":
        log.staging_start()
        log.staging_stop(12.5)
    log.init_stop()
    log.run_start()
    if staging == "timed":
        log.staging_start()
        log.staging_stop(12.5)
    for epoch, score in enumerate(scores, 1):
        log.epoch_start(epoch)
        log.event("learning_rate", 0.001, epoch_num=epoch)
        log.event("throughput", 1234.5, epoch_num=epoch)
        log.eval_start(epoch)
        log.eval_stop(epoch)
        log.quality(task.metric_key, score, epoch)
        log.epoch_stop(epoch)
    log.run_stop("success")
    return path


TO_TARGET = {"cosmoflow": (0.4, 0.2, 0.123), "deepcam": (0.5, 0.7, 0.8201)}


@pytest.mark.parametrize("ruleset", RULESETS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_closed_logs_of_both_applications_pass(tmp_path, name, ruleset):
    result = check_log(drive(tmp_path / "mllog.txt", name, scores=TO_TARGET[name]), ruleset=ruleset)
    assert (result.official, result.messages, result.division) == ("pass", [], "closed")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.application}-{recipe.preset}")
def test_closed_logs_of_every_published_recipe_pass(tmp_path, recipe):
    path, name, batch = tmp_path / "mllog.txt", recipe.application, recipe.global_batch_size
    result = check_log(drive(path, name, recipe.preset, TO_TARGET[name], batch=batch))
    assert (result.official, result.messages, result.division) == ("pass", [], "closed")
    logged = {entry["key"]: entry["value"] for entry in lines_of(path)}
    assert logged["global_batch_size"] == batch
    assert logged["opt_lr" if name == "deepcam" else "opt_base_learning_rate"] == pytest.approx(recipe.peak)
    assert logged["opt_name"] == {"SGD": "sgd", "LAMB": "LAMB"}[recipe.optimizer]


@pytest.mark.parametrize("name", PUBLISHED)
def test_closed_logs_pass_the_official_command(tmp_path, name):
    """As a submitter runs it, in a process of its own."""
    import subprocess
    import sys

    path = drive(tmp_path / "mllog.txt", name, scores=TO_TARGET[name])
    module = "mlperf_logging.compliance_checker"
    command = [sys.executable, "-m", module, "--usage", "hpc", "--ruleset", "3.0.0", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "SUCCESS" in done.stdout + done.stderr) == (0, True)


@pytest.mark.parametrize(("ruleset", "ok"), [("1.0.0", False), ("2.0.0", False), ("3.0.0", True)])
def test_staging_before_the_clock_passes_since_3_0(tmp_path, ruleset, ok):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", scores=TO_TARGET["cosmoflow"], staging="before")
    result = check_log(path, ruleset=ruleset)
    assert result.ok is ok
    assert ok or "'staging_start'" in result.official_messages[0]


def test_a_resumed_run_passes(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", scores=(0.4, 0.3))
    path.write_text(path.read_text().replace('"status": "success"', '"status": "aborted"'))
    log = RunLog.resume(path, epoch=1)
    log.init_start()
    log.init_stop()
    log.run_start()
    log.epoch_start(2)
    log.eval_start(2)
    log.eval_stop(2)
    log.quality("eval_error", 0.12, 2)
    log.epoch_stop(2)
    log.run_stop("success")
    assert check_log(path).messages == []


def test_an_open_run_that_reaches_the_published_quality_passes(tmp_path):
    path = drive(tmp_path / "mllog.txt", "deepcam", "smoke", scores=(0.5, 0.9), target=0.85)
    result = check_log(path)
    assert (result.division, result.official, result.ok) == ("open", "pass", True)


def test_an_open_run_that_reaches_its_own_target_is_told_apart(tmp_path):
    """The official open rules ask for the published quality too, which a small problem cannot be held to."""
    path = drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.3), target=0.35)
    result = check_log(path)
    assert (result.official, result.ok, result.messages) == ("own target", True, [])
    assert result.official_messages == ["Failed checks for eval_error : v['value'] <= 0.124 and v['value'] > 0."]


def test_an_open_run_that_misses_its_own_target_fails(tmp_path):
    result = check_log(drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.4), target=0.35))
    assert result.official == "fail"
    assert result.beyond_messages == ["no metric before run_stop reaches the target"]


def test_the_target_of_a_resumed_run_is_its_last(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.3), target=0.2)
    lines = path.read_text().splitlines(keepends=True)
    target = next(line for line in lines if '"quality_target"' in line)
    path.write_text("".join([*lines[:-1], target.replace("0.2", "0.35"), lines[-1]]))
    assert check_log(path).official == "own target"


def test_an_open_run_without_a_target_is_judged_by_the_official_checker_alone(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.3), target=0.35)
    path.write_text(
        "".join(line for line in path.read_text().splitlines(keepends=True) if "quality_target" not in line)
    )
    result = check_log(path)
    assert (result.official, result.beyond_messages) == ("fail", [])


def test_a_small_run_cannot_pass_as_closed(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.3), target=0.35)
    text = path.read_text().replace("524288", "1000")
    path.write_text(text)
    result = check_log(path, division="closed")
    assert (result.division, result.official) == ("closed", "fail")
    assert "train_samples is 1000, the published set has 524288" in result.beyond_messages
    assert path.read_text() == text


def test_an_application_unknown_to_the_checker_is_held_to_the_common_rules(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", "smoke", scores=(0.5, 0.3), target=0.35)
    path.write_text(path.read_text().replace('"cosmoflow"', '"protein"'))
    result = check_log(path)
    assert (result.official, result.ok) == ("common rules", True)
    result = check_log(path, division="closed")
    assert result.official_messages == ["submission_benchmark 'protein' has no closed division in ruleset 3.0.0"]
    path.write_text(path.read_text().replace('"run_start"', '"run_begin"'))
    assert any("'run_start'" in message for message in check_log(path).official_messages)


@pytest.mark.parametrize("ruleset", RULESETS)
@pytest.mark.parametrize("path", [COSMOFLOW, DEEPCAM], ids=lambda path: path.stem)
def test_published_logs_pass_as_published(path, ruleset):
    assert check_log(path, ruleset=ruleset).official == "pass"


def test_published_log_of_round_0_7_fails_as_published():
    """It lacks keys that came with 1.0; these thirteen were found by the command of mlperf_logging 4.1.68."""
    result = check_log(OLD, ruleset="1.0.0")
    assert result.official == "fail"
    assert len(result.official_messages) == 13
    assert result.official_messages[0] == "Required EXACTLY_ONE occurrence of 'number_of_nodes' but found 0"


def test_published_log_without_a_seed_passes_the_checker_but_not_the_package_checker():
    """mlperf_logging's package checker refuses NVIDIA's v1.0 CosmoFlow logs because of it."""
    assert check_log(COSMOFLOW, ruleset="3.0.0").beyond_messages == [
        "no seed is logged, which the official package checker wants in the closed division"
    ]
    assert check_log(COSMOFLOW, ruleset="1.0.0").ok
    assert check_log(DEEPCAM, ruleset="3.0.0").ok


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]


def edited(tmp_path: Path, edit) -> Path:
    """A log that passes, after ``edit`` of its list of entries."""
    path = drive(tmp_path / "mllog.txt", "cosmoflow", scores=TO_TARGET["cosmoflow"])
    entries = edit(lines_of(path))
    path.write_text("".join(f":::MLLOG {json.dumps(entry)}\n" for entry in entries))
    return path


def moved(entries: list[dict], key: str, place: int) -> list[dict]:
    entry = next(e for e in entries if e["key"] == key)
    rest = [e for e in entries if e is not entry]
    at = place if place >= 0 else len(rest) + 1 + place
    return [*rest[:at], entry, *rest[at:]]


def changed(entries: list[dict], key: str, **fields) -> list[dict]:
    return [entry | fields if entry["key"] == key else entry for entry in entries]


def at(entries: list[dict], key: str) -> int:
    return next(place for place, entry in enumerate(entries) if entry["key"] == key)


def renumbered(entries: list[dict]) -> list[dict]:
    return [
        entry | {"metadata": entry["metadata"] | {"epoch_num": 0}} if "epoch" in entry["key"] else entry
        for entry in entries
    ]


BEYOND = {
    "aborted": (
        lambda e: changed(e, "run_stop", metadata={"status": "aborted", "reason": "SIGTERM"}),
        "run_stop has status 'aborted' (SIGTERM)",
    ),
    "cache_clear late": (lambda e: moved(e, "cache_clear", -1), "cache_clear comes after run_start"),
    "epoch before the clock": (lambda e: moved(e, "epoch_start", at(e, "run_start")), "comes before run_start"),
    "run_stop before epochs": (lambda e: moved(e, "run_stop", at(e, "epoch_start")), "before the first epoch"),
    "epochs not from 1": (renumbered, "epoch_start number 1 has epoch_num 0"),
    "time goes back": (
        lambda e: changed(e, "run_stop", time_ms=e[0]["time_ms"] - 5000),
        "time goes back by",
    ),
    "NaN": (lambda e: changed(e, "opt_learning_rate_decay_factor", value=[float("nan")]), "has the value [nan]"),
    "samples": (lambda e: changed(e, "train_samples", value=1000), "the published set has 524288"),
    "decay factor": (lambda e: changed(e, "opt_learning_rate_decay_factor", value=5), "is not between 0 and 1"),
    "no seed": (lambda e: [x for x in e if x["key"] != "seed"], "no seed is logged"),
    "seed as text": (lambda e: changed(e, "seed", value="7"), "seed '7' is not an integer"),
    "seed without place": (lambda e: changed(e, "seed", metadata={}), "seed lacks file and lineno"),
    "metric after the end": (
        lambda e: moved(e, "run_stop", at(e, "eval_error")),
        "eval_error in line",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BEYOND)
def test_faults_that_the_official_checker_lets_pass_are_found(tmp_path, fault):
    edit, message = BEYOND[fault]
    result = check_log(edited(tmp_path, edit))
    assert result.official == "pass"
    assert any(message in found for found in result.beyond_messages), result.beyond_messages
    assert not result.ok


def test_negative_weight_decay_is_beyond_the_official_deepcam_rules(tmp_path):
    path = drive(tmp_path / "mllog.txt", "deepcam", scores=TO_TARGET["deepcam"])
    path.write_text(path.read_text().replace('"opt_weight_decay", "value": 0.01', '"opt_weight_decay", "value": -0.01'))
    result = check_log(path)
    assert (result.official, result.beyond_messages) == ("pass", ["opt_weight_decay -0.01 is negative"])


def test_training_on_after_the_target_for_power_samples_is_a_note(tmp_path):
    """As NVIDIA's v3.0 CosmoFlow logs do, which the rules on power allow."""

    def edit(entries):
        stop = next(e for e in entries if e["key"] == "run_stop")
        late = next(e for e in entries if e["key"] == "eval_error") | {"time_ms": stop["time_ms"]}
        return [*entries, late]

    result = check_log(edited(tmp_path, edit))
    assert result.ok
    assert "allowed, since the target was reached before" in result.notes[0]


def test_a_crash_of_the_official_checker_is_a_message_and_does_not_spoil_the_next_log(tmp_path):
    bad = edited(tmp_path, lambda e: changed(e, "eval_error", value="low"))
    assert "the checker itself failed on this log (TypeError" in check_log(bad).official_messages[-1]
    assert mlp_compliance.enqueued_configs == []
    assert check_log(DEEPCAM).ok


def test_a_division_that_would_crash_the_checker_is_a_fault(tmp_path):
    path = edited(tmp_path, lambda e: changed(e, "submission_division", value="Closed"))
    assert check_log(path).official_messages == ["submission_division is 'Closed', not open or closed"]
    assert check_log(path, division="closed").ok


def test_a_scheduler_name_cannot_lead_the_checker_to_another_file(tmp_path):
    path = drive(tmp_path / "mllog.txt", "deepcam", scores=TO_TARGET["deepcam"])
    path.write_text(path.read_text().replace('"cosine_annealing"', '"/../../elsewhere"'))
    assert check_log(path).official_messages == ["scheduler_type is not a plain name"]


def test_a_damaged_line_is_a_fault(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", scores=TO_TARGET["cosmoflow"])
    path.write_text(path.read_text() + ":::MLLOG {broken\n")
    result = check_log(path)
    assert not result.ok
    assert "is not a log line" in result.official_messages[0]


def test_a_line_without_a_value_is_a_fault(tmp_path):
    path = tmp_path / "mllog.txt"
    path.write_text(':::MLLOG {"time_ms": 1, "key": "run_start", "metadata": {}}\n')
    assert check_log(path).official_messages == ["line 1 is not a log line (KeyError: 'value')"]


def test_lines_with_a_rank_before_them_and_other_text_are_read(tmp_path):
    path = tmp_path / "mllog.txt"
    path.write_text("some text\n" + "".join(f"0: {line}\n" for line in DEEPCAM.read_text("latin-1").splitlines()))
    assert check_log(path).ok


def test_a_log_without_lines_is_a_fault(tmp_path):
    (tmp_path / "mllog.txt").write_text("nothing\n")
    assert check_log(tmp_path / "mllog.txt").official_messages == ["holds no :::MLLOG line"]


def test_checking_leaves_no_file_and_no_handler(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEEPCAM, tmp_path / "log.txt")
    handlers = list(logging.getLogger().handlers)
    check_log("log.txt", division="open")
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]
    assert logging.getLogger().handlers == handlers
    assert capfd.readouterr() == ("", "")


def test_unknown_ruleset_division_and_file_say_so(tmp_path):
    with pytest.raises(InputError, match=r"ruleset 0\.7\.0 is not one of 1\.0\.0, 2\.0\.0, 3\.0\.0"):
        check_log(DEEPCAM, ruleset="0.7.0")
    with pytest.raises(InputError, match="division 'shut' is neither open nor closed"):
        check_log(DEEPCAM, division="shut")
    with pytest.raises(DataError, match="cannot be read"):
        check_log(tmp_path / "none.txt")


def test_run_official_agrees_with_the_class_it_drives():
    checker = mlp_compliance.make_checker("hpc", "1.0.0", True, False)
    assert checker.check_file(str(COSMOFLOW), "hpc_1.0.0/common.yaml") is (run_official(COSMOFLOW, "1.0.0") == [])
