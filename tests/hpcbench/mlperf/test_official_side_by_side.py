"""The official tools beside ours, on published logs and on packages with faults: one verdict, one score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.mlperf.official_log import read_official_log
from hpcbench.mlperf.official_score import log_files, official_score
from hpcbench.mlperf.package_check import check_organization
from hpcbench.mlperf.rulesets import RULESETS
from tests.hpcbench.mlperf.official_tools import package_verdict, read_rules_once, summarized
from tests.hpcbench.mlperf.packages import mutated

FEW, MANY, MORE = range(8), range(8, 68), range(68, 1068)


def compare(root: Path, seed: int) -> str:
    """Compare both on the package of a seed; what the package was, for the count of cases."""
    folder, names = mutated(root, seed)
    organization, ruleset = folder.parents[3], RULESETS[seed % 3]
    said = f"seed {seed}, ruleset {ruleset}: {', '.join(names) or 'nothing'} in {folder.parent.name}/{folder.name}"
    throughput = folder.parent.name == "weak"

    def compare_scores() -> str:
        logs = [read_official_log(path, ruleset) for path in log_files(folder)]
        ours = official_score(folder, logs, throughput, ruleset)
        theirs = summarized(organization, ruleset)
        if isinstance(theirs, str):
            extra = folder.parent / "bert", folder.parent / "openfold"
            assert ours.crash is not None or any(path.exists() for path in extra), f"{said}: {theirs}"
            return "crash"
        assert ours.crash is None, f"{said}: {ours.crash}"
        assert ours.minutes == pytest.approx(theirs.get((folder.parent.name, folder.name)), abs=1e-6), said
        return "no score" if ours.minutes is None else "score"

    ours = check_organization(organization, ruleset)
    before = {path.name for path in folder.iterdir()}
    first = compare_scores()
    (folder / "scaling.json").unlink(missing_ok=True) if "scaling.json" not in before else None
    theirs = package_verdict(organization, ruleset)
    assert ours.passed == (theirs is True), f"{said}: {theirs}; {ours.faults}; {[f.faults for f in ours.folders]}"
    crashed = any(fault.startswith("crash") or "crash" in fault
                  for fault in (*ours.faults, *(each for found in ours.folders for each in found.faults)))  # fmt: skip
    assert crashed == isinstance(theirs, str), f"{said}: {theirs}; {ours.faults}"
    if not crashed:
        compare_factor(folder, ours, said, "scaling.json" in before)
    compare_scores()  # now with what the package checker has written
    return f"{first}, {'crash' if crashed else 'pass' if theirs else 'fail'}"


def compare_factor(folder: Path, ours: object, said: str, was_there: bool) -> None:
    """The package checker has written the factor that our test gives, deleted one, or left the file alone."""
    found = [each.reference for each in ours.folders if each.folder == folder]  # type: ignore[attr-defined]
    if not found or found[0] is None or found[0].factor is None:
        assert (folder / "scaling.json").exists() == was_there, said
    elif found[0].factor > 1 and found[0].passed:
        written = json.loads((folder / "scaling.json").read_text())["scaling_factor"]
        assert written == pytest.approx(found[0].factor, abs=1e-9), said
    else:
        assert not (folder / "scaling.json").exists(), said


def compare_all(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_rules_once(monkeypatch)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    cases = [compare(tmp_path / str(seed), seed) for seed in seeds]
    print({case: cases.count(case) for case in sorted(set(cases))})


@pytest.mark.slow
def test_a_few_packages_have_the_verdict_and_the_score_of_the_official_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_all(FEW, tmp_path, monkeypatch)


@pytest.mark.slow
def test_many_packages_have_the_verdict_and_the_score_of_the_official_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_all(MANY, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.long
def test_a_thousand_packages_have_the_verdict_and_the_score_of_the_official_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_all(MORE, tmp_path, monkeypatch)
