"""``hpcbench campaign``: what it prints, its exit codes, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench.campaign import campaign_run, plan, runs, sizes
from hpcbench.campaign.read_rules import campaign_path
from hpcbench.cli.main import main
from hpcbench.config.schema import RunConfig
from hpcbench.planning.dataset_size import DatasetSize
from hpcbench.study.folder import StudyFolder
from hpcbench.study.run_status import RunStatus
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import all_runs
from tests.hpcbench.campaign.made_up import UNCHANGED, make_size, shipped

pytestmark = pytest.mark.usefixtures("forked_processes")

PERLMUTTER = ["--site", "perlmutter-gpu"]


@pytest.fixture(autouse=True)
def no_sites_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what is shipped, and packages that are unchanged."""
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path / "sites"))
    monkeypatch.setenv("HPCBENCH_CAMPAIGNS", str(tmp_path / "campaigns"))
    monkeypatch.setattr(runs, "installation", lambda: UNCHANGED)


@pytest.fixture
def four_gib_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of memory that takes no seconds."""

    def counted(application: object, config: RunConfig, nodes: int, ranks: int) -> int:
        return 2**30 * (1 + 4 * config.train.local_batch_size)

    monkeypatch.setattr(sizes, "rank_memory", counted)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that is said of these words after ``hpcbench campaign``."""
    assert main(["campaign", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0].removeprefix("hpcbench: error: ")


def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()[2:]] == ["esif-hpc-4", "mlperf-hpc-3.0", "nersc10-deepcam"]
    assert main(["campaign", "show", "nersc10-deepcam"]) == 0
    page = capsys.readouterr().out
    for words in ("9.550", "7.895", "Perlmutter, 4 x A100-40 GB a node", "precision: 32-true", "global batch 2,048"):
        assert words in page
    assert main(["campaign", "show", "esif-hpc-4"]) == 0
    page = capsys.readouterr().out
    for words in ("16.39", "16.02", "15.87", "13.10", "11.04", "N, 4N and 8N nodes"):
        assert words in page


def test_rules_in_a_file_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours.yaml").write_text("extends: esif-hpc-4\ntitle: Ours\n")
    assert main(["campaign", "show", "--rules", str(tmp_path / "ours.yaml")]) == 0
    assert capsys.readouterr().out.startswith("Ours\n")


@pytest.mark.usefixtures("four_gib_a_sample")
def test_plan_says_what_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "plan", "nersc10-deepcam", *PERLMUTTER, "--nodes", "16,256"]) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "cannot run: 64 GPUs cannot hold a global batch of 2,048 without accumulation: local batch 32 needed" in out
    assert "The fewest epochs known at batch 2,048 are 22.6" in out
    assert main(["campaign", "plan", "nersc10-deepcam", *PERLMUTTER, "--nodes", "256,512"]) == 0
    assert "cannot run" not in capsys.readouterr().out
    machine = ["--machine", "frontier", "--nodes", "128"]
    assert main(["campaign", "plan", "nersc10-deepcam", *machine]) == 0
    assert "1,024            2" in capsys.readouterr().out, "Frontier's nodes have eight accelerators"


@pytest.mark.usefixtures("four_gib_a_sample")
def test_plan_names_the_scenarios_that_need_the_size_of_an_instance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "not planned: cosmoflow-throughput, deepcam-throughput; give --instance-nodes"
    assert main(["campaign", "plan", "mlperf-hpc-3.0", *PERLMUTTER, "--nodes", "16"]) == 0
    assert said in capsys.readouterr().out
    main(["campaign", "plan", "mlperf-hpc-3.0", *PERLMUTTER, "--nodes", "16", "--instance-nodes", "1"])
    out = capsys.readouterr().out
    assert "not planned" not in out
    assert "deepcam-throughput: Throughput of DeepCAM" in out
    rules = tmp_path / "models.yaml"
    tree = yaml.safe_load(campaign_path("mlperf-hpc-3.0", {}).read_text())
    rules.write_text(yaml.safe_dump({**tree, "scenarios": [s for s in tree["scenarios"] if s.get("throughput")]}))
    line = refused(capsys, "plan", "--rules", str(rules), *PERLMUTTER, "--nodes", "16")
    assert line == "scenario cosmoflow-throughput needs --instance-nodes, the nodes of each instance"


@pytest.mark.usefixtures("four_gib_a_sample")
@pytest.mark.parametrize("tag", [None, "v0.2.0"])
def test_plan_says_that_the_packages_are_of_no_release(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tag: str | None
) -> None:
    commit = {"basis": "commit", "unchanged": True, "commit": "0123456789abcdef", "tag": tag}
    monkeypatch.setattr(plan, "installation", lambda: commit)
    assert main(["campaign", "plan", "nersc10-deepcam", *PERLMUTTER, "--nodes", "256"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    named = "commit 0123456789ab" + (f" ({tag})" if tag else "")
    assert f"packages: baseline needs the released ones; here {named}, unchanged" in out
    assert ("commit 0123456789ab has no release tag (v*)" in out) == (tag is None)


@pytest.mark.parametrize(
    ("nodes", "simulated"), [("2", True), ("1", False)], ids=("nodes are simulated", "one node is this machine")
)
def test_a_run_on_simulated_nodes_says_that_it_does_not_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nodes: str, simulated: bool
) -> None:
    monkeypatch.setattr(campaign_run, "make_entries", lambda *_, **__: False)
    words = ["nersc10-deepcam", "--nodes", nodes, "--campaign-dir", str(tmp_path / "c")]
    assert main(["campaign", "run", *words, "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Sizes of several nodes are simulated on this machine") == simulated
    assert ("so that their runs do not count as results of the campaign; give --site" in out) == simulated


def test_a_dry_run_of_a_rehearsal_says_what_it_would_simulate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["mlperf-hpc-3.0", "--rehearsal", "--scenario", "deepcam", "--campaign-dir", "new"]
    assert main(["campaign", "run", *words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "data: would be simulated in new/data/deepcam\n" in out
    assert "3 runs on this machine; its nodes are simulated" in out, "the plan"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("four_gib_a_sample")
def test_plan_looks_at_the_dataset_that_is_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = DatasetSize(512, 64, 1, 1, "files")
    monkeypatch.setattr(sizes, "dataset_size", lambda application, config: mini)
    words = ["plan", "nersc10-deepcam", *PERLMUTTER, "--nodes", "256", "--data.root", "/mini"]
    assert main(["campaign", *words]) == 2
    assert "the dataset in /mini has 512 training samples, the rules want 121,266" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "nersc-10"], "unknown campaign 'nersc-10'; did you mean 'nersc10-deepcam'?"),
        (["show"], "name a campaign, or give its file with --rules; `hpcbench campaign list` lists those there are"),
        (["show", "esif-hpc-4", "--rules", "x.yaml"], "name a campaign, or give its file with --rules"),
        (["show", "--rules", "nowhere.yaml"], "nowhere.yaml: cannot read the configuration"),
        (["plan", "esif-hpc-4", "--nodes", "2,6"], "--nodes 2,6: scenario s1 asks for N, 4N, 8N nodes"),
        (["plan", "nersc10-deepcam"], "scenario deepcam needs --nodes, its sizes in nodes"),
        (["plan", "nersc10-deepcam", "--nodes", "x"], "--nodes (x) must be numbers"),
        (["plan", "nersc10-deepcam", "--nodes", "1", "--site", "perlmuter-gpu"], "unknown site 'perlmuter-gpu'"),
        (["plan", "nersc10-deepcam", "--nodes", "1", "--machine", "perlmuter-gpu"], "unknown machine 'perlmuter-gpu'"),
        (["plan", "nersc10-deepcam", "--nodes", "1", "--machine", "frontier", *PERLMUTTER], "are both given; name one"),
        (["plan", "nersc10-deepcam", "--nodes", "256", "--category", "basline"], "did you mean 'baseline'?"),
        (["plan", "nersc10-deepcam", "--nodes", "256", "--optim.lr", "0.01"],
         "--optim.lr 0.01: category baseline of nersc10-deepcam fixes optim.lr at 0.0055"),
        (["plan", "nersc10-deepcam", "--nodes", "256", "--optim.lrr", "0.01"], "unknown key 'optim.lrr'"),
        (["plan", "nersc10-deepcam", "--nodes", "256", "--parallel.reduce_dtype", "bfloat16"],
         "--parallel.reduce_dtype bfloat16: category baseline of nersc10-deepcam allows parallel.reduce_dtype grad"),
        (["plan", "nersc10-deepcam", "--nodes", "256", "--parallel.simulated_ranks", "4"],
         "--parallel.simulated_ranks 4: no run with it counts in nersc10-deepcam"),
        (["plan", "nersc10-deepcam", "--nodes", "256", "--train.max_steps", "5"],
         "--train.max_steps 5: no run with it counts in nersc10-deepcam"),
        (["run", "esif-hpc-4", "--nodes", "1", "--campaign-dir", "d"], "has several scenarios; give one with"),
        (["run", "esif-hpc-4", "--scenario", "s3", "--campaign-dir", "d"], "has no scenario 's3'"),
        (["run", "esif-hpc-4", "--rehearsal", "--nodes", "1", "--campaign-dir", "d"], "--nodes is not for a rehearsal"),
        (["run", "esif-hpc-4", "--rehearsal", *PERLMUTTER, "--campaign-dir", "d"],
         "--site perlmutter-gpu is not for a rehearsal"),
        (["run", "esif-hpc-4", "--rehearsal", "--optim.lr", "1", "--campaign-dir", "d"], "fixes optim.lr at 0.004"),
        (["run", "esif-hpc-4", "--rehearsal", "--train.seed", "1", "--campaign-dir", "d"],
         "--train.seed is for the campaign to draw"),
        (["run", "nersc10-deepcam", "--nodes", "3", "--campaign-dir", "d"],
         "nersc10-deepcam, scenario deepcam: 3 ranks cannot share a global batch of 2,048 evenly; 2 or 4 can"),
        (["report", "nowhere"], "nowhere holds no campaign.json; give the --campaign-dir of a campaign"),
        (["report", "nowhere", "--optim.lr", "1"], "takes no dotted settings"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_baseline_needs_unchanged_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed: dict[str, Any] = {**UNCHANGED, "unchanged": False, "differing": 1, "names": ["changed: hpcbench/a.py"]}
    monkeypatch.setattr(runs, "installation", lambda: changed)
    words = ["run", "nersc10-deepcam", "--nodes", "1", "--campaign-dir", str(tmp_path / "c"), "--dry-run"]
    assert refused(capsys, *words) == (
        "category baseline of nersc10-deepcam needs the released packages: hpcbench-ml 0.1.0, but 1 file differs: "
        "changed: hpcbench/a.py; install the release, or commit, or take --category ported or optimized"
    )


def test_folders_that_are_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "c"
    words = ["run", "nersc10-deepcam", "--rehearsal", "--campaign-dir", str(folder)]
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    assert "is not empty and holds no campaign; give a new folder" in refused(capsys, *words)
    (folder / "thesis.tex").unlink()
    (folder / "campaign.json").write_text("{")
    assert "campaign.json: cannot be read" in refused(capsys, *words)
    (folder / "campaign.json").write_text('{"schema": 7}')
    assert "is no campaign of schema 1" in refused(capsys, "report", str(folder))
    (folder / "campaign.json").unlink()
    made = make_size(folder, shipped("esif-hpc-4"), "s1", "baseline", 1, [{"local": 12, "epochs": 5, "epoch_s": 1.0}])
    assert "holds campaign esif-hpc-4, not nersc10-deepcam" in refused(capsys, *words)
    assert "holds no rehearsal" in refused(capsys, "run", "esif-hpc-4", *words[2:])
    text = made.definition.read_text()
    made.definition.write_text(text.replace('"replicates": 3', '"replicates": 4'))
    one = ["run", "esif-hpc-4", "--scenario", "s1", "--campaign-dir", str(folder), "--nodes", "1",
           "--train.local_batch_size", "12"]  # fmt: skip
    assert "was made with other rules of esif-hpc-4 than today's" in refused(capsys, *one)
    made.definition.write_text(text.replace('"title"', '"titel"', 1))
    assert "campaign.json" in refused(capsys, "report", str(folder))


@pytest.mark.slow
def test_jobs_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def submitted(study: Scaling, place: StudyFolder, options: object) -> dict[str, RunStatus]:
        return {run.name: RunStatus("waiting") for run in all_runs(study)}

    monkeypatch.setattr(runs, "make_runs", submitted)
    folder = tmp_path / "c"
    words = ["--nodes", "256", "--account", "m1", "--data.root", "/pscratch/deepcam", "--campaign-dir", str(folder)]
    assert main(["campaign", "run", "nersc10-deepcam", *PERLMUTTER, *words]) == 0
    out = capsys.readouterr().out
    assert f"status: hpcbench study status {folder}/baseline/deepcam\n" in out
    assert f"when they are done: hpcbench campaign report {folder}\n" in out
    study = json.loads((folder / "baseline/deepcam/study.json").read_text())
    assert (study["kind"], study["global_batch_size"], study["ranks_per_node"]) == ("strong", 2048, 4)
    assert study["settings"]["train.target"] == "0.8"
    assert study["settings"]["train.max_epochs"] == "64"
    assert main(["campaign", "run", "nersc10-deepcam", *PERLMUTTER, *words]) == 0
    assert json.loads((folder / "baseline/deepcam/study.json").read_text())["seed"] == study["seed"], "drawn once"


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "nersc10-deepcam", "--nodes", "1", "--campaign-dir", str(tmp_path / "c")]
    assert "no dataset: set --data.root DIR" in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_mixed_benchmarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [{"local": 12, "epochs": 5, "epoch_s": 1.0}]
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s1", "baseline", 1, own)
    path = folder.path / "baseline/s1/runs/n0001-r1/summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "application": "cosmoflow"}))
    said = refused(capsys, "report", str(folder.path))
    assert "is a run of cosmoflow, scenario s1 of esif-hpc-4 is of deepcam; take it out of the folder" in said


def test_a_campaign_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s1", "baseline", 1,
                       [{"local": 12, "epochs": 5, "epoch_s": 1.0}])  # fmt: skip
    run = folder.path / "baseline/s1/runs/n0001-r1"
    for path in run.iterdir():
        path.unlink()
    run.rmdir()
    assert "has no run that is done" in refused(capsys, "report", str(folder.path))
