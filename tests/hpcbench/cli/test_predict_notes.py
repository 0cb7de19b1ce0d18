"""What ``hpcbench predict`` says below its tables, and files that other commands wrote for it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.machine import MACHINES, Machine, Source, Storage, read_machine
from hpcbench.characterisation.file import write_characterisation
from hpcbench.characterisation.machine_file import write_machine
from hpcbench.characterisation.model import Host, InputData, Roof
from hpcbench.cli.main import main
from hpcbench.prediction import fitted as fitted_module
from hpcbench.prediction.fitted import Fitted, fit_published
from hpcbench.prediction.input_limits import InputLimits, input_limits
from hpcbench.prediction.platforms import platform_of, shipped_machines
from hpcbench.prediction.workload import work_of
from tests.hpcbench.conftest import BuildRun
from tests.hpcbench.prediction.test_kernel_time import characterisation_with, kernel
from tests.hpcbench.prediction.test_message_time import characterised
from tests.hpcbench.prediction.test_planned_staging import probe_of

LOGS = Path(__file__).parents[2] / "data" / "logs"
LOG = LOGS / "v1.0-nvidia-cosmoflow.txt"
HELD = "Input: the memory of 16 nodes holds the data"
ASSUMED = "Input: 0.3 to 4 GB/s for the decoding by a core"


@pytest.fixture(scope="module")
def once() -> Fitted:
    return fit_published()


@pytest.fixture(autouse=True)
def same_fit(once: Fitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One fit for all tests, and no machines of the user who runs them."""
    monkeypatch.setattr(fitted_module, "fit_published", lambda: once)
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path / "sites"))


def said(capsys: pytest.CaptureFixture[str], *words: str, application: str = "cosmoflow") -> str:
    """The notes of a prediction, on one line."""
    assert main(["predict", application, *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_storage_that_nobody_timed_is_named_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    notes = said(capsys, "--machine", "selene", "--nodes", "32,64", "--batch", "512")
    number = r"([0-9.]+)"
    interval = re.search(rf"Staging: neither a run nor a probe timed .*; {number} to {number} minutes on 64 n", notes)
    assert interval is not None
    low, high = (float(end) for end in interval.groups())
    assert high > 2 * low > 0
    measured = said(capsys, "--machine", "selene", "--nodes", "64", "--batch", "512", "--calibrate", str(LOG))
    assert "neither a run nor a probe" not in measured


def test_a_run_that_cannot_be_read_says_why(build_run: BuildRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run("damaged")
    shutil.copy(LOG, run / "mllog.txt")
    (run / "summary.json").write_text("{")
    assert main(["predict", "cosmoflow", "--machine", "selene", "--nodes", "16",
                 "--calibrate", str(LOG), str(run)]) == 2  # fmt: skip
    (line,) = "".join(capsys.readouterr()).strip().splitlines()
    assert f"--calibrate {run}" in line
    assert "cannot be read" in line
    assert "summary.json: is not JSON" in line


def test_the_system_that_no_model_explains_is_called_experimental(capsys: pytest.CaptureFixture[str]) -> None:
    assert "The model is experimental for HoreKa" in said(capsys, "--machine", "horeka", "--nodes", "16")
    assert "experimental" not in said(capsys, "--machine", "selene", "--nodes", "16")


def test_own_runs_are_counted_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(LOG, folder / "result_0.txt")
    notes = said(capsys, "--machine", "selene", "--nodes", "128", "--recipe", str(folder))
    assert "Epochs: 1 run of your own, in runs." in notes


def test_the_storage_of_a_machine_file_is_the_rate_of_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    summit, work = read_machine(MACHINES / "summit.yaml"), work_of("cosmoflow")
    assert summit.memory_gib is not None
    # 9.9 TB of arrays: 619 GB on each of 16 nodes, 77 GB on each of 128
    platform = platform_of(summit, [summit])
    assert [input_limits(platform, work, nodes).storage for nodes in (16, 128)] == ["/mnt/bb", None]
    words = ["--machine", "summit", "--nodes", "16,128", "--batch", "768", "--recipe", "other"]
    notes = said(capsys, *words)
    rate = "Input: 16 nodes read at 5.5 GB/s each, the rate of /mnt/bb in summit.yaml, within a factor of 1.5; "
    assert f"{rate}--input-gb-s gives" in notes
    assert "Input: the memory of 128 nodes holds the data" in notes
    assert "Input:" not in said(capsys, *words, "--input-gb-s", "5")
    notes = said(capsys, "--machine", "selene", "--nodes", "16")
    assert HELD in notes
    assert ASSUMED in notes
    assert "12.6 to 31.5 GB/s for the link from a node to an accelerator are assumed" in notes
    # a run on the machine timed its steps with the input
    calibrated = said(capsys, "--machine", "selene", "--nodes", "16", "--calibrate", str(LOG))
    assert HELD in calibrated
    assert "Input: 0.3" not in calibrated


def test_samples_without_room_and_storage_that_nobody_timed_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    # 7.8 TB of arrays and 8.7 TB as published: 490 and 543 GB on each of 16 nodes, which have 275 GB of memory; that
    # /dev/shm may take half of it bounds a staging, and not what the memory holds.
    notes = said(capsys, "--machine", "perlmutter-gpu", "--nodes", "16,128", application="deepcam")
    assert "Input: no room on 16 nodes for 44 to 49 % of the samples" in notes
    assert "come again in each epoch, at the rate of the staging" in notes
    notes = said(capsys, "--machine", "horeka", "--nodes", "8", "--batch", "128", application="deepcam")
    assert (
        "Input: 8 nodes read from the storage, whose rate is not in horeka.yaml; 2 to 7 GB/s each are assumed" in notes
    )


def test_a_rate_of_storage_without_a_known_room_is_the_slowest() -> None:
    def machine(*storage: Storage) -> Machine:
        facts = ("accelerators", "cores", "network_gb_s", *names(storage))
        return Machine("m", "M", accelerators=1, cores=8, network_gb_s=9.0, storage=storage,
                       sources=(Source("measured: here", "2026-01-01", facts),))  # fmt: skip

    def names(storage: tuple[Storage, ...]) -> tuple[str, ...]:
        return tuple(f"storage.{each.path}" for each in storage)

    def limits(*storage: Storage) -> InputLimits:
        made = platform_of(machine(*storage), shipped_machines(), calibrated=True)
        return input_limits(made, work_of("cosmoflow"), 128)

    timed = limits(Storage("/a", read_gb_s=3.0), Storage("/b", read_gb_s=2.0))
    assert timed.storage == "/b"
    assert timed.storage_bytes_per_s is not None
    assert timed.storage_bytes_per_s.central == pytest.approx(2e9)
    # data land where there is room, whatever else is timed: 9 of 77 GB, or of 13 GB as they are published
    small = limits(Storage("/a", read_gb_s=3.0), Storage("/b", gb=9.0))
    assert (small.storage, small.is_timed) == ("/b", False)
    assert small.unheld == pytest.approx((1 - 9e9 / (4608 * 2.83e6), 1 - 9e9 / (4608 * 16_777_488)))


def test_staging_by_its_plan_and_a_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe, out = tmp_path / "probe.json", tmp_path / "p.json"
    probe.write_text(json.dumps(probe_of(2, 1e9).as_dict()))
    words = ["--machine", "selene", "--nodes", "16", "--batch", "512", "--probe", str(probe), "--out", str(out)]
    notes = said(capsys, *words)
    assert "Staging: by the plan of each size and the probe of 2 nodes from /source" in notes
    assert "limited by cold read" in notes
    (size,) = json.loads(out.read_text())["predictions"][0]["sizes"]
    assert size["staging_basis"] == {"from": "plan and probe", "limited_by": ["cold read"], "probed_nodes": 2}
    # 1.67 TB at 2 GB/s, or at 16 GB/s; the one stream of each of the 16 nodes then writes its part at 2 GB/s
    read = work_of("cosmoflow").dataset_bytes
    ends = [read / rate + read / 16 / 2e9 for rate in (2e9, 16e9)]
    assert size["staging_s"]["central"] == pytest.approx((ends[0] * ends[1]) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory); give the probe.json of `hpcbench stage SRC DST --probe`"),
        ("{", "is no JSON"),
        ("[]", "is no probe's result"),
        ('{"what": "hpcbench staging probe", "schema": 9}', "has schema 9 where 1 is read"),
    ],
)
def test_a_probe_that_cannot_be_used_is_one_line(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "probe.json"
    if content is not None:
        path.write_text(content)
    assert main(["predict", "cosmoflow", "--machine", "selene", "--nodes", "16", "--probe", str(path)]) == 2
    (line,) = "".join(capsys.readouterr()).strip().splitlines()
    assert f"--probe {path}" in line
    assert message in line


def test_what_characterize_writes_is_what_predict_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = work_of("cosmoflow")
    data = InputData("npy", work.train_samples, work.validation_samples, 1e6, 1, 1e6)
    made = characterisation_with(kernel("convolution", 4e10, 1e8, 1), kernel("copy", 0, 2e9, 1), input=data)
    made = replace(made, roofs=(*made.roofs, Roof("read", "/scratch", 2e9, "B/s", "")))
    write_characterisation(made, tmp_path / "c.json")
    write_machine(made, tmp_path / "mine.yaml")
    notes = said(capsys, "--machine", str(tmp_path / "mine.yaml"), "--nodes", "1,4", "--batch", "64",
                 "--characterization", str(tmp_path / "c.json"))  # fmt: skip
    assert "device time by kernels" in notes
    assert "read at 2 GB/s each, the rate of /scratch in mine.yaml" in notes
    assert "Unknown in mine.yaml: network_gb_s" in notes


def test_what_messages_rest_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assumed, measured = "published entries do not determine their latency", "by the curves and the overlap that were"
    words = ["--machine", "selene", "--nodes", "16", "--batch", "512"]
    assert assumed in said(capsys, *words, "--interconnect")
    assert "Messages" not in said(capsys, *words)
    work = work_of("cosmoflow")
    data = InputData("npy", work.train_samples, work.validation_samples, 1e6, 1, 1e6)
    host = Host("there", "cuda", "NVIDIA A100", 2, 2, 1, None)
    write_characterisation(characterised(input=data, host=host), tmp_path / "c.json")
    words = ["--machine", "selene", "--nodes", "1,16", "--batch", "512", "--characterization", str(tmp_path / "c.json")]
    notes = said(capsys, *words)
    assert f"Messages: {measured} measured between nodes." in notes
    # ranks of one node were not measured
    assert f"Messages of 1 node: {assumed}" in notes


@pytest.mark.parametrize(("device", "machine"), [("cpu", "selene"), ("cuda", "mine")])
def test_kernels_of_another_kind_of_device_are_refused(
    device: str, machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = work_of("cosmoflow")
    data = InputData("npy", work.train_samples, work.validation_samples, 1e6, 1, 1e6)
    made = characterisation_with(kernel("convolution", 4e10, 1e8, 1), input=data)
    write_machine(made, tmp_path / "mine.yaml")
    host = Host("there", device, "a device", 1, 1, 1, None)
    write_characterisation(replace(made, host=host), tmp_path / "c.json")
    where = str(tmp_path / "mine.yaml") if machine == "mine" else machine
    words = ["--machine", where, "--nodes", "1", "--characterization", str(tmp_path / "c.json")]
    assert main(["predict", "cosmoflow", *words]) == 2
    (line,) = "".join(capsys.readouterr()).strip().splitlines()
    assert "the --characterization was measured on a device, which tells nothing of the" in line
