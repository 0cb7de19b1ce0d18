"""Bad input of ``hpcbench package``: one line, exit code 2, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.submission.scrub import scrubber
from tests.hpcbench.submission.conftest import BuildRun

Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Runs a command that is refused: Refused, and returns its line."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main(["package", *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before, "nothing is left behind, no empty folder either"
        return error

    return run


def test_names_and_runs(refused: Refused, tmp_path: Path, build_run: BuildRun) -> None:
    one = str(build_run(tmp_path / "one"))
    assert "ORG 'my lab' must have letters, digits" in refused("my lab", one)
    assert "give run folders or a study after ORG" in refused("LAB")
    assert "the system has no name; give one with --system NAME" in refused("LAB", one)
    assert "system '.box' must have letters" in refused("LAB", one, "--system", ".box")
    assert "run folder nothing does not exist" in refused("LAB", "nothing")
    assert "is given for time to train and for throughput" in refused("LAB", one, "--throughput", one)
    (tmp_path / "study").mkdir()
    (tmp_path / "study/study.json").write_text("{}")
    assert "the study in study has no run yet" in refused("LAB", "study")
    (tmp_path / "one/summary.json").unlink()
    assert "no run is left: one is left out: its run has not ended" in refused("LAB", "one")


def test_runs_that_do_not_go_together(refused: Refused, tmp_path: Path, build_run: BuildRun) -> None:
    one, other = str(build_run(tmp_path / "one")), str(build_run(tmp_path / "two", optim__lr="0.02"))
    system = "--system", "box"
    assert "runs of one entry differ in hyperparameters: opt_base_learning_rate 0.0" in refused(
        "LAB", one, other, *system
    )
    third = str(build_run(tmp_path / "three", submission__division="open"))
    assert "the runs are of two divisions: closed (" in refused("LAB", one, third, *system)
    log = Path(build_run(tmp_path / "four")) / "mllog.txt"
    log.write_text(log.read_text().replace('"global_batch_size", "value": 512', '"global_batch_size", "value": 1024'))
    assert "runs of one entry differ in global batch: " in refused("LAB", one, "four", *system)
    summary = RunFolder(tmp_path / "four").read_summary()
    summary.ruleset = "2.0.0"
    RunFolder(tmp_path / "four").write_summary(summary)
    assert "the runs follow different rules: 2.0.0 (four), 3.0.0 (" in refused("LAB", one, "four", *system)
    names = [str(build_run(tmp_path / f"n0004-r{repeat}-i001")) for repeat in (1, 2)]
    assert "instances of 2 sizes and repeats; give those of one, such as" in refused("LAB", "--throughput", *names)
    (tmp_path / "four/system.json").write_text("{")
    assert "four/system.json: cannot be read" in refused("LAB", "four", *system)


DEEP = "[" * 100_000 + "]" * 100_000
LINE = ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "", "key": "x", "value": %s, "metadata": {}}\n'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("system.json", DEEP, "system.json: cannot be read (maximum recursion depth exceeded"),
        ("environment.json", DEEP, "environment.json: cannot be read (maximum recursion depth exceeded"),
        ("system.json", f'{{"other_software_stack": {"[" * 700 + "]" * 700}}}',
         "system.json: has more than 20 levels within one another; restore it, or leave the run out"),
        ("mllog.txt", LINE % DEEP, "has more than 20 levels within one another; mend the line, or leave the run out"),
        ("mllog.txt", LINE % ("[" * 500 + "]" * 500), "has more than 20 levels within one another; mend the line"),
    ],
    ids=("system", "environment", "stack", "log", "log that JSON reads"),
)  # fmt: skip
def test_files_that_nest_without_end(
    refused: Refused, tmp_path: Path, build_run: BuildRun, name: str, text: str, said: str
) -> None:
    path = build_run(tmp_path / "one") / name
    lines = path.read_text().count("\n")
    path.write_text(path.read_text() + text if name == "mllog.txt" else text)
    error = refused("LAB", "one", "--system", "box")
    assert said in error
    assert f"{name}: line {lines + 1} " in error or name != "mllog.txt"


def test_groups_that_are_something_else(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not there is not published; the rest of the package is as ever."""
    run = build_run(tmp_path / "one", application="deepcam", epochs=7)
    (run / "environment.json").write_text('{"source": [1], "versions": 3, "host": [2]}')
    (run / "job.json").write_text('{"site": "perlmutter-gpu", "nodes": 16, "time_s": "long"}')
    assert main(["package", "LAB", str(run), "--system", "box", "--out", str(tmp_path / "out")]) == 1
    assert "1 of 5 runs; 4 more runs with new seeds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coolling: air\n", "unknown key 'coolling'; did you mean 'cooling'"),
        ("number_of_nodes: 4\n", "number_of_nodes cannot be set, because it is that of the runs"),
        ("status: available\n", "status 'available' must be one of cloud, onprem, preview, research"),
        ("cooling: [air]\n", "cooling must be a text"),
        ("cooling: &a air\n", "facts.yaml"),
    ],
)
def test_facts(text: str, said: str, refused: Refused, tmp_path: Path, build_run: BuildRun) -> None:
    one = str(build_run(tmp_path / "one"))
    (tmp_path / "facts.yaml").write_text(text)
    assert said in refused("LAB", one, "--system", "box", "--facts", "facts.yaml")


def test_the_template_is_read_back_and_nothing_overwritten(
    refused: Refused, tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    one = str(build_run(tmp_path / "one"))
    assert main(["package", "LAB", one, "--write-facts", "facts.yaml"]) == 0
    text = Path("facts.yaml").read_text()
    assert 'cooling: ""' in text
    assert '# host_processor_model_name: "AMD EPYC 7742"' in text
    assert "--write-facts facts.yaml exists" in refused("LAB", one, "--write-facts", "facts.yaml")
    assert "cannot be written" in refused("LAB", one, "--write-facts", "no/where.yaml")
    assert "the system has no name" in refused("LAB", one, "--facts", "facts.yaml")  # the host's is none
    Path("facts.yaml").write_text(text.replace('system_name: ""', 'system_name: "box"'))
    assert main(["package", "LAB", one, "--facts", "facts.yaml"]) == 1
    before = sorted(Path("submissions").rglob("*"))
    capsys.readouterr()
    assert main(["package", "LAB", one, "--facts", "facts.yaml"]) == 2
    assert "submissions/v3.0/LAB exists; remove it, or give another --out" in capsys.readouterr().err
    assert sorted(Path("submissions").rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("read /scratch/x/y.tfrecord: bad", "read <path>: bad"),
        ("https://example.org/a/b and samples/s", "https://example.org/a/b and samples/s"),
        ("ssh nid1.site.org as ann", "ssh <host> as <user>"),
        ("nid1 nid12 annex", "<host> nid12 annex"),
        ("~/data, root=/lustre/ann", "<path>, root=<path>"),
        ("$TMPDIR/hpcbench", "$TMPDIR/hpcbench"),
        ("dropped pages below /scratch/set on n1", "dropped pages below <path> on <host>"),
        ("n1 n12 n1-a run1 jo jot", "<host> n12 n1-a run1 <user> jot"),
        ("tcp on n1-hsn0 and nid1.site.org-ib1", "tcp on <host> and <host>"),
        ("on n[1-3,7],nid[004711-004712] cells[0]", "on <host>,<host> cells[0]"),
        ("n0[1-3] of n[i] and turn[1]", "<host> of n[i] and turn[1]"),
        ("pkg @ file:///scratch/jo/pkg.whl", "pkg @ file://<path>"),
    ],
)
def test_scrubbing(text: str, clean: str) -> None:
    scrub = scrubber(["/home/ann/x"], {"nid1.site.org", "n1"}, {"root", "jo"})
    assert scrub.text(text) == clean
    assert scrub.alike == frozenset()


def test_names_that_look_like_other_text_stay_and_are_told() -> None:
    scrub = scrubber(["/home/x/set", "/homes/j/jdoe"], {"7", "localhost", "1234567"}, {"42", "ann"})
    assert scrub.alike == {"7", "x", "42"}
    assert scrub.text("x 7 42 j 1234567, jdoe") == "x 7 42 j <host>, <user>"
