"""``hpcbench predict``: what is shown and written, and bad input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from hpcbench.batch.machine import MACHINES
from hpcbench.cli.main import main
from hpcbench.prediction import fitted as fitted_module
from hpcbench.prediction.fitted import Fitted, fit_published
from hpcbench.prediction.workload import work_of
from tests.hpcbench.conftest import BuildRun

LOGS = Path(__file__).parents[2] / "data" / "logs"
STUDY = Path(__file__).parents[3] / "docs" / "studies" / "superseded" / "cosmoflow-batch"
PERLMUTTER = ["predict", "cosmoflow", "--machine", "perlmutter-gpu", "--nodes", "32,128"]


@pytest.fixture(scope="module")
def once() -> Fitted:
    return fit_published()


@pytest.fixture(autouse=True)
def same_fit(once: Fitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One fit for all tests, and no machines of the user who runs them."""
    monkeypatch.setattr(fitted_module, "fit_published", lambda: once)
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path / "sites"))


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table under a title."""
    lines = text.partition(title)[2].lstrip("\n").partition("\n\n")[0].splitlines()[2:]
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_sizes_with_their_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PERLMUTTER, "--batch", "512", "--interconnect"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert "not verified by MLCommons Association" in " ".join(shown.split())
    times, parts = rows(shown, "Time to solution:"), rows(shown, "Parts, in seconds:")
    assert [row[:2] for row in times] == [["32", "512 (4)"], ["128", "512 (1)"]]
    for time, part in zip(times, parts, strict=True):
        numbers = [float(cell.replace(",", "")) for cell in part[1:]]
        assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.4)
        assert float(time[2]) == pytest.approx(numbers[-1] / 60, rel=0.01)
        low, high = (float(end) for end in time[3].split(" to "))
        assert low < float(time[2]) < high
    assert len(rows(shown, "With a slower interconnect (messages alone):")) == 2
    assert "Unknown in perlmutter-gpu.yaml: accelerator_link_gb_s" in shown


def test_json_and_page_say_what_the_screen_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "p.json", tmp_path / "p.html"
    words = ["predict", "cosmoflow", "deepcam", "--machine", "selene", "--nodes", "16,64,512", "--pool", "80"]
    assert main([*words, "--out", str(out), "--page", str(page)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(out.read_text())
    first = found["predictions"][0]["sizes"][0]
    assert sum(part["central"] for part in first["parts_s"].values()) == pytest.approx(first["time_s"]["central"])
    assert "cannot be shared evenly" in found["predictions"][0]["sizes"][2]["refused"]
    notes = [note for each in found["predictions"] for note in each["notes"]]
    assert notes
    assert all(" ".join(note.split()) in " ".join(shown.split()) for note in notes)
    assert {(one["application"], one["nodes"]) for one in found["advice"][0]["shares"]} <= {
        (name, nodes) for name in ("cosmoflow", "deepcam") for nodes in (16, 64)
    }  # fmt: skip
    html = page.read_text()
    assert "How the parts add up" in html
    assert "not verified by MLCommons Association" in html
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", html)
    assert rows(shown, "Time to solution:")[0][2] in html


def test_every_interval_is_in_a_table_and_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "p.json", tmp_path / "p.html"
    words = ["predict", "deepcam", "--machine", "perlmutter-gpu", "--nodes", "16,32,64,128,256", "--instances", "2"]
    assert main([*words, "--out", str(out), "--page", str(page)]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    heading, html = "80 % intervals; those of parts do not add up:", page.read_text()
    _, *blocks = shown.split(heading)
    lines = [row for block in blocks for row in rows(heading + block, heading)]
    found = json.loads(out.read_text())["predictions"][0]["sizes"]
    for first, sizes in ((0, found[:4]), (1, found[4:])):
        assert len([line for line in lines if len(line) == 1 + len(sizes)]) == 11, first
        expected = {"epochs": [(size["epochs"], 1.0) for size in sizes], "step, ms": [(size["step_s"], 1e3) for size in
                    sizes], "epoch, s": [(size["epoch_s"], 1.0) for size in sizes]}  # fmt: skip
        expected |= {f"{name}, s": [(size["parts_s"][name], 1.0) for size in sizes] for name in found[0]["parts_s"]}
        for name, values in expected.items():
            (cells,) = [line[1:] for line in lines if line[0] == name and len(line) == 1 + len(sizes)]
            for cell, (interval, factor) in zip(cells, values, strict=True):
                low, high = (float(end.replace(",", "")) for end in cell.split(" to "))
                assert low == pytest.approx(factor * interval["low"], rel=0.006, abs=0.01), name
                assert high == pytest.approx(factor * interval["high"], rel=0.006, abs=0.01), name
                assert f">{cell}<" in html


def test_a_part_that_is_only_possible_has_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    # 3.9 TB on each node, more than its memory holds: the drives are likely to be fast enough, not certainly
    assert main(["predict", "deepcam", "--machine", "selene", "--nodes", "2", "--batch", "128"]) == 0
    shown = capsys.readouterr().out
    assert "input" not in shown.partition("Parts, in seconds:\n")[2].splitlines()[0]
    (cell,) = [row[1] for row in rows(shown, "80 % intervals; those of parts do not add up:") if row[0] == "input, s"]
    assert cell.startswith("0 to ")
    assert float(cell.removeprefix("0 to ")) > 10


def test_a_run_on_the_machine_calibrates(capsys: pytest.CaptureFixture[str]) -> None:
    log = LOGS / "v1.0-nvidia-cosmoflow.txt"
    words = ["predict", "cosmoflow", "--machine", "selene", "--nodes", "128", "--batch", "1024", "--software", "v1.0"]
    assert main([*words, "--calibrate", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "calibrated by 1 run" in shown
    # its epochs after the first take 8.1 s of 512 steps in the median
    assert rows(shown, "Time to solution:")[0][5] == "15.8 ms"
    # a machine whose file lacks the peak can be predicted where it was measured
    assert main(["predict", "cosmoflow", "--machine", "frontier", "--nodes", "4", "--calibrate", str(log)]) == 0


def measured_run(build_run: BuildRun, application: str, node_watts: float) -> str:
    """A run of the published size with the log of a published one, which read its energy."""
    run = build_run(application, application=application, time_to_solution_s=100.0, energy_j=node_watts * 8 * 100.0,
                    nodes=8, world_size=64,
                    flops_training_per_sample=round(work_of(application).useful_flop))  # fmt: skip
    shutil.copy(LOGS / f"v1.0-nvidia-{application}.txt", run / "mllog.txt")
    return str(run)


def test_a_pool_is_shared_for_the_least_energy_where_runs_of_all_read_it(
    build_run: BuildRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [measured_run(build_run, "cosmoflow", 4000.0), measured_run(build_run, "deepcam", 5000.0)]
    pool = ["predict", "cosmoflow", "deepcam", "--machine", "selene", "--nodes", "16,32", "--pool", "64"]
    out = tmp_path / "p.json"
    assert main([*pool, "--calibrate", *runs, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    table = rows(shown, "Shares of 64 nodes, all trainings at once:")
    assert [row[0] for row in table[::2]] == ["time", "node-hours", "energy"]
    time, hours, energy = json.loads(out.read_text())["advice"]
    assert energy["least"] == "energy"
    assert energy["energy_kwh"] <= min(time["energy_kwh"], hours["energy_kwh"])
    assert main([*pool, "--calibrate", runs[0]]) == 0
    shown = capsys.readouterr().out
    table = rows(
        shown, "Shares of 64 nodes, all trainings at once (energy needs a --calibrate run of each that read it):"
    )
    assert [row[0] for row in table[::2]] == ["time", "node-hours"]


def test_several_trainings_of_one_application_share_a_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = ["--machine", "selene", "--nodes", "16,32,64", "--pool", "128"]
    for number, apps in enumerate((["3xcosmoflow", "deepcam"], ["cosmoflow", "2xcosmoflow", "deepcam"])):
        out = tmp_path / f"{number}.json"
        assert main(["predict", *apps, *rest, "--out", str(out)]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 100
        found = json.loads(out.read_text())
        assert [one["application"] for one in found["predictions"]] == ["cosmoflow", "deepcam"]
        time, hours = found["advice"]
        for advice in (time, hours):
            assert [one["application"] for one in advice["shares"]] == ["cosmoflow"] * 3 + ["deepcam"]
            assert sum(one["nodes"] for one in advice["shares"]) <= 128
        # node-hours fall with fewer nodes: all four trainings at the smallest size
        assert [one["nodes"] for one in hours["shares"]] == [16] * 4
        table = rows(shown, "Shares of 128 nodes, all trainings at once (energy needs")
        assert ["node-hours", "3 x cosmoflow", "16"] in [row[:3] for row in table]


def test_own_runs_are_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(LOGS / "v1.0-nvidia-cosmoflow.txt", tmp_path / "result_0.txt")
    assert main([*PERLMUTTER, "--recipe", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert [(row[1].split()[0], row[4]) for row in rows(shown, "Time to solution:")] == [("1,024", "35.0")] * 2
    assert main([*PERLMUTTER, "--batch", "512", "--recipe", str(tmp_path)]) == 2
    assert "has no run that reached the target at batch 512 (it has 1,024)" in "".join(capsys.readouterr())


def test_a_machine_may_be_any_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(PERLMUTTER) == 0
    shown = capsys.readouterr().out
    mine = tmp_path / "mine.yaml"
    shutil.copyfile(MACHINES / "perlmutter-gpu.yaml", mine)
    assert main([*PERLMUTTER, "--machine", str(mine)]) == 0
    words = shown.replace("perlmutter-gpu.yaml", "mine.yaml").split()
    assert capsys.readouterr().out.split() == words
    mine.unlink()
    assert main([*PERLMUTTER, "--machine", str(mine)]) == 2
    assert f"hpcbench: error: {mine}: " in "".join(capsys.readouterr())


@pytest.mark.parametrize("option", ["--recipe", "--calibrate"])
def test_runs_of_another_size_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PERLMUTTER, option, str(STUDY)]) == 2
    assert "GFLOP where those that are predicted have 192.1" in "".join(capsys.readouterr())


BAD = {
    "unknown machine 'perlmuter'; did you mean 'perlmutter-gpu'?": ["--machine", "perlmuter"],
    "machine dtu-gpua100 has no accelerator_memory_gb_s and no peak_16bit_tflop_s": ["--machine", "dtu-gpua100"],
    "no tuned code was published on AMD MI250X (one of its two dies) of frontier": ["--machine", "frontier"],
    "--nodes 0 must be from 1 to 1,000,000": ["--nodes", "0"],
    "--nodes a,b must be whole numbers with commas": ["--nodes", "a,b"],
    "--nodes 100,000: perlmutter-gpu has 1,792 nodes of this kind": ["--nodes", "100000"],
    "--nodes 3,840: perlmutter-gpu has 1,792 nodes": ["--instances", "30"],
    "a global batch of 100 cannot be shared evenly by 128 accelerators": ["--nodes", "32", "--batch", "100"],
    "no reference point of cosmoflow is at batch 8,192 or above": ["--batch", "8192"],
    "--recipe mine must be reference, other, or a folder": ["--recipe", "mine"],
    "--calibrate nothing does not exist": ["--calibrate", "nothing"],
    "is a run of deepcam; give one of cosmoflow": ["--calibrate", str(LOGS / "v1.0-nvidia-deepcam.txt")],
    "--out p.txt must end with .json": ["--out", "p.txt"],
    "--page none/p.html: the folder none does not exist": ["--page", "none/p.html"],
    "--software": ["--software", "v3.0"],
    "--input-gb-s (0) must be at least 0.001": ["--input-gb-s", "0"],
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_line(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PERLMUTTER, *BAD[message]]) == 2
    said = capsys.readouterr()
    text = said.out + said.err
    assert message in text
    assert len(text.strip().splitlines()) == 1


def test_a_run_is_no_substitute_for_the_number_of_accelerators(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    source = "sources: [{url: 'measured: me', read: 2026-11-24, facts: [nodes%s]}]\n"
    mine.write_text("title: mine\nnodes: 128\n" + source % "")
    assert main([*PERLMUTTER, "--machine", str(mine)]) == 2
    said = "".join(capsys.readouterr())
    assert "has no accelerators and no accelerator_memory_gb_s and no peak_16bit_tflop_s" in said
    assert said.endswith("with a source to a file of your own (mine.yaml)\n")
    mine.write_text("title: mine\nnodes: 128\naccelerators: 0\n" + source % ", accelerators")
    assert main([*PERLMUTTER, "--machine", str(mine)]) == 2
    assert "".join(capsys.readouterr()).endswith(
        "(mine.yaml), or give a run on it with --calibrate, or its --characterization\n"
    )


def test_applications_are_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rest = ["--machine", "selene", "--nodes", "4"]
    for apps, message in (
        (["cosmoflo"], "no published round has 'cosmoflo'"),
        (["cosmoflow", "deepcam"], "share a pool; give its nodes with --pool N"),
        (["cosmoflow", "cosmoflow"], "several trainings (cosmoflow, cosmoflow) share a pool; give its nodes with"),
        (["2xcosmoflow"], "several trainings (2xcosmoflow) share a pool"),
        (["0xcosmoflow", "--pool", "8"], "0xcosmoflow: trainings of cosmoflow must be from 1 to 1,000"),
        (["999xcosmoflow", "2xcosmoflow", "--pool", "8"], "2xcosmoflow: trainings of cosmoflow must be from 1 to 1,0"),
        (["3xcosmoflow", "--pool", "8"], "--pool 8 nodes are too few for 3 trainings; the smallest sizes need 12"),
        (["2xcosmoflo", "--pool", "8"], "no published round has 'cosmoflo'"),
    ):
        assert main(["predict", *apps, *rest]) == 2
        assert message in "".join(capsys.readouterr())
    there = tmp_path / "p.json"
    there.write_text("")
    assert main(["predict", "cosmoflow", *rest, "--out", str(there)]) == 2
    assert "exists; remove it" in "".join(capsys.readouterr())
    assert there.read_text() == ""
