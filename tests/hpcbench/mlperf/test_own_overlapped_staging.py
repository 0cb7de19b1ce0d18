"""Own runs that stage beside training: staging is what the training waited, and the phases add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.campaign.entry import base_config
from hpcbench.campaign.figures import read_run
from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.own_runs import read_own_run
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.folder import StudyFolder
from staging.errors import DataError
from tests.hpcbench.campaign.made_up import START_MS, entry_of, shipped, write_run

BEFORE_S, EPOCHS_S, STAGED_S, WAITED_S = 10.0, (1790.0, 300.0, 290.0), 1800.0, 90.0
ESIF = entry_of(shipped("esif-hpc-4"), "s2", "baseline")


def made(root: Path, overlap: bool = True, **changes: Any) -> RunFolder:
    """A run of 40 minutes in three epochs. A staging begins 10 s before and takes 30 minutes."""
    settings = {"staging.destination": "/local", "staging.overlap": str(overlap).lower()}
    write_run(StudyFolder(root), ESIF, "n0001-r1", 1, local=256, epochs=3, epoch_s=1, settings=settings, **changes)
    folder = RunFolder(StudyFolder(root).run("n0001-r1"))
    lines = [line for line in folder.mllog.read_text().splitlines() if "epoch_num" not in line and "run_s" not in line]

    def line(at_s: float, key: str, value: Any = None, **metadata: Any) -> None:
        record = {"time_ms": START_MS + 1000 * at_s, "key": key, "value": value, "metadata": metadata}
        lines.append(f":::MLLOG {json.dumps(record)}")

    line(0, "run_start")
    line(0, "staging_start")
    now = BEFORE_S
    for epoch, seconds in enumerate(EPOCHS_S, 1):
        line(now, "epoch_start", epoch_num=epoch)
        now += seconds
        if epoch == 1:
            line(STAGED_S, "staging_stop")
        line(now, "epoch_stop", epoch_num=epoch)
        line(now, "eval_start", epoch_num=epoch)
        now += 1
        line(now, "eval_accuracy", 0.83, epoch_num=epoch)
        line(now, "eval_stop", epoch_num=epoch)
    line(2400, "run_stop", status="success")
    folder.mllog.write_text("\n".join(lines) + "\n")
    rows = [f"{epoch},{epoch * 100},{seconds},1" for epoch, seconds in enumerate(EPOCHS_S, 1)]
    folder.epochs.write_text("\n".join(["epoch,step,train_s,eval_s", *rows]) + "\n")
    folder.write_json("staging.json", {"exposed_s": BEFORE_S + WAITED_S})
    return folder


def phases(folder: RunFolder) -> tuple[float | None, list[float]]:
    """Staging and epochs in seconds; with evaluations and the rest they are the time to train."""
    found = read_own_run(LogLocation(folder.mllog, "own"))
    assert found.rest_s is not None
    parts = (found.staging_s or 0) + sum(found.epochs_s) + sum(found.evaluations_s) + found.rest_s
    assert parts == pytest.approx(found.time_to_train_s) == 2400
    assert found.rest_s >= 0
    return found.staging_s, found.epochs_s


def test_what_training_waited_is_staging(tmp_path: Path) -> None:
    staging_s, epochs_s = phases(made(tmp_path))
    assert staging_s == pytest.approx(BEFORE_S + WAITED_S)
    assert epochs_s == pytest.approx([EPOCHS_S[0] - WAITED_S, *EPOCHS_S[1:]])


def test_minutes_without_staging_have_the_training_beside_it(tmp_path: Path) -> None:
    folder = made(tmp_path)
    run = read_run(ESIF, base_config(ESIF), folder.path, 1, 1)
    assert run.value == pytest.approx((2400 - BEFORE_S - WAITED_S) / 60)


def test_without_a_report_staging_is_what_lies_outside_epochs(tmp_path: Path) -> None:
    folder = made(tmp_path)
    folder.staging.unlink()
    staging_s, epochs_s = phases(folder)
    assert (staging_s, epochs_s) == (pytest.approx(BEFORE_S), pytest.approx(list(EPOCHS_S)))


def test_a_resumed_run_has_the_training_of_its_table(tmp_path: Path) -> None:
    staging_s, epochs_s = phases(made(tmp_path, resumed=1))
    assert (staging_s, epochs_s) == (pytest.approx(BEFORE_S), pytest.approx(list(EPOCHS_S)))


def test_a_staging_without_overlap_is_none_of_the_training(tmp_path: Path) -> None:
    staging_s, epochs_s = phases(made(tmp_path, overlap=False))
    assert staging_s == pytest.approx(STAGED_S)
    assert epochs_s == pytest.approx([0, *EPOCHS_S[1:]]), "as its log has it"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"exposed_s": "long"}'])
def test_a_damaged_report_is_named(tmp_path: Path, text: str) -> None:
    folder = made(tmp_path)
    folder.staging.write_text(text)
    with pytest.raises(DataError, match=r"staging\.json: is not the report of a staging beside training; leave the"):
        read_own_run(LogLocation(folder.mllog, "own"))
