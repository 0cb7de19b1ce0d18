"""Mutated files of every format, briefly; and that the fuzzer finds each kind of bug, and repeats it by its number."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from staging.first_reads import FirstReads
from staging.formats.reading import Feed
from tests.staging.fuzz.allowed import WrongError
from tests.staging.fuzz.campaign import HANGS, Campaign, Finding, Outcome, finding_of, is_in_hdf5, reproduce
from tests.staging.fuzz.family import FAMILIES, find_family, make_case
from tests.staging.fuzz.planted import TRIGGER
from tests.staging.processes import ENVIRON, memory_folder

SEED = int(os.environ["HPCBENCH_SEED"])
"""In the first lines of each run of the tests."""
PLANTED = "tests.staging.fuzz.planted:"


def fuzz(tmp_path: Path, families: list[str], cases: int, seed: int, seconds: float | None = None) -> Outcome:
    """A campaign on one child."""
    with memory_folder(tmp_path) as folder:
        return Campaign(seed, folder).run(families, cases, seconds)


def told(outcome: Outcome) -> str:
    """Each bug with its traceback and the command that repeats it."""
    return "\n".join(f"{finding}\n{finding.trace}" for finding in outcome.bugs)


@pytest.mark.slow
def test_some_files_of_every_format(tmp_path: Path) -> None:
    outcome = fuzz(tmp_path, list(FAMILIES), 25 * len(FAMILIES), seed=SEED)
    assert outcome.cases == dict.fromkeys(FAMILIES, 25)
    assert not outcome.bugs, told(outcome)


@pytest.mark.slow
def test_a_minute_of_every_format(tmp_path: Path) -> None:
    outcome = fuzz(tmp_path, list(FAMILIES), 1_000_000, SEED, seconds=60)
    assert min(outcome.cases.values()) >= 250
    assert set(outcome.cases) == set(FAMILIES)
    assert not outcome.bugs, told(outcome)


@pytest.mark.parametrize("name", FAMILIES)
def test_sound_files_are_read_and_are_repaired_as_they_are(name: str, tmp_path: Path) -> None:
    family = find_family(name)
    for number, seed in enumerate(family.seeds):
        (tmp_path / str(number)).mkdir()
        family.read(seed, tmp_path / str(number), random.Random(1))
        if name not in ("tar", "tfrecord", "npy", "example"):  # which write the same otherwise
            assert family.repair(seed, random.Random(1)) == seed


def test_a_first_read_that_compares_only_whole_files_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the large file of a manifest are read, and a bit that flipped there must not pass."""
    family, real = find_family("manifest"), FirstReads.reading

    def reading(reads: FirstReads, file: int, path: Path, offset: int, size: int) -> Feed | None:
        return real(reads, file, path, offset, size) if size == path.stat().st_size else None

    monkeypatch.setattr(FirstReads, "reading", reading)
    found = []
    for number in range(8):
        (tmp_path / str(number)).mkdir()
        try:
            family.read(family.seeds[0], tmp_path / str(number), random.Random(number))
        except WrongError as error:
            found.append(str(error))
    assert set(found) == {"a bit that flipped passes the first read"}


def triggers(name: str, seed: int, number: int) -> bool:
    """Whether a planted bug shows in a case."""
    return TRIGGER in make_case(find_family(name), name, seed, number)[0]


def first(name: str) -> tuple[int, int]:
    """A seed whose first case is sound, and the number of its first case in which a planted bug shows."""
    seed = next(seed for seed in range(100) if not triggers(name, seed, 0))
    return seed, next(number for number in range(300) if triggers(name, seed, number))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "kind", "what"),
    [
        ("Crashes", "crash", "the process ended by SIGSEGV"),
        ("Hangs", "hang", "the process ended by SIGPROF"),
        ("Allocates", "memory", "MiB for a file of "),
        ("RaisesKeyError", "exception", "KeyError: \"'name'\""),
        ("SpeaksInLines", "wrong", "a message that is not printable"),
        ("Leaves", "crash", "the process ended by exit code 3"),
    ],
)
def test_each_kind_of_bug_is_found_named_and_repeated(
    planted: str, kind: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRON, "HPCBENCH_FUZZ_CPU_S", "0.3")
    name = PLANTED + planted
    seed, case = first(name)
    outcome = fuzz(tmp_path, [name], case + 1, seed)
    assert outcome.cases[name] == case + 1
    (finding,) = outcome.bugs
    assert (finding.kind, finding.case, finding.seed) == (kind, case, seed)
    assert what in finding.what
    assert finding.alone in (True, None)
    if planted in ("Crashes", "Hangs"):
        assert finding.where.endswith(" misbehave")
    assert f"--reproduce {name}:{seed}:{case}" in str(finding)
    (again,) = reproduce(name, seed, case)
    assert (again.kind, again.case, again.where) == (finding.kind, finding.case, finding.where)
    assert reproduce(name, seed, 0) == []


def test_cases_behind_a_crash_are_read_and_crashes_are_counted(tmp_path: Path) -> None:
    name = PLANTED + "Crashes"
    outcome = fuzz(tmp_path, [name], 30, seed=5)
    assert outcome.cases[name] == 30
    assert outcome.counts.total() == sum(triggers(name, 5, number) for number in range(30)) > 1
    assert len(outcome.first) == 1


def test_a_reader_without_a_bug_has_none(tmp_path: Path) -> None:
    outcome = fuzz(tmp_path, [PLANTED + "Sound"], 500, seed=5)
    assert outcome.cases.total() == 500
    assert not outcome.first


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_case_is_the_same_by_its_number(name: str, tmp_path: Path) -> None:
    """Here, in another process, and whatever came before."""
    family = find_family(name)
    files = [make_case(family, name, 3, number)[0] for number in range(8, 12)]
    assert files == [make_case(find_family(name), name, 3, number)[0] for number in reversed(range(8, 12))][::-1]
    assert len(set(files)) > 1
    with memory_folder(tmp_path) as folder:
        campaign = Campaign(3, folder)
        campaign.run([name], 12)
    digest = hashlib.sha256()
    for number in range(12):
        digest.update(make_case(family, name, 3, number)[0])
    assert campaign.outcome.sums == {(name, 0, 12): digest.hexdigest()}


def test_the_command_tells_its_seed_and_repeats_a_case(tmp_path: Path) -> None:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.staging.fuzz", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRON, timeout=100)

    name = PLANTED + "RaisesKeyError"
    seed, case = first(name)
    done = run("--seed", seed, "--cases", case + 1, "--formats", name, "--report", tmp_path / "report.json")
    assert done.returncode == 1
    assert done.stdout.startswith(f"seed {seed}\n")
    assert f"again: python -m tests.staging.fuzz --reproduce {name}:{seed}:{case}" in done.stdout
    assert '"findings": {\n  "exception": 1\n }' in (tmp_path / "report.json").read_text()
    again = run("--reproduce", f"{name}:{seed}:{case}", "--save", tmp_path / "case")
    assert again.returncode == 1
    assert "KeyError: 'name'" in again.stdout
    assert (tmp_path / "case").read_bytes() == make_case(find_family(name), name, seed, case)[0]
    assert run("--seed", 5, "--cases", 50, "--formats", PLANTED + "Sound").returncode == 0


def kind_of(ended_by: signal.Signals, file: str) -> str:
    """The kind of a finding where a signal ended the child at the first line of ``file``."""
    found = {"died": -ended_by, "case": 2, "trace": f'  File "{file}", line 1 in read\n'}
    finding = finding_of("hdf5", 1, found)
    assert finding is not None
    outcome = Outcome()
    outcome.add(finding)
    assert bool(outcome.bugs) is (finding.kind != "library")
    return finding.kind


@pytest.mark.parametrize("ended_by", HANGS)
def test_a_hang_within_hdf5_is_a_finding(ended_by: signal.Signals) -> None:
    import h5py

    assert kind_of(ended_by, h5py.__file__) == "hang"


def test_a_crash_within_hdf5_is_told_from_one_of_staging(tmp_path: Path) -> None:
    import h5py

    from staging.formats import hdf5, tar

    def number(path: str, text: str) -> int:
        lines = Path(path).read_text().splitlines()
        return next(place for place, line in enumerate(lines, 1) if text in line)

    assert is_in_hdf5(h5py.__file__, 1)
    assert kind_of(signal.SIGSEGV, h5py.__file__) == "library"
    assert kind_of(signal.SIGSEGV, tar.__file__) == "crash"
    assert is_in_hdf5(hdf5.__file__, number(hdf5.__file__, "file.id.links.exists("))
    assert not is_in_hdf5(hdf5.__file__, number(hdf5.__file__, "rows = max("))
    assert not is_in_hdf5(tar.__file__, 1)
    outcome = Outcome()
    outcome.add(Finding("hdf5", 1, 2, "library", "the process ended by SIGSEGV", "h5py", ""))
    assert not outcome.bugs
    assert outcome.as_dict()["findings"] == {"library": 1}
