"""The decomposition is exact: for any seconds, in both modes, and where entries do not tell their accelerators."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.analysis.decomposition import GROUPS, decompose, factors
from hpcbench.analysis.entry_runs import EntryRuns, entries_of_runs
from hpcbench.mlperf.published import published_runs
from hpcbench.mlperf.run_record import RunRecord
from tests.hpcbench.analysis.made_runs import entry, run

SECONDS = st.floats(1e-3, 1e5)


@st.composite
def runs(draw: st.DrawFn, mode: str, system: str) -> list[RunRecord]:
    """Runs of an entry with any seconds; the rest may be negative, as clocks and logs have it."""
    made = []
    count = draw(st.sampled_from([None, 1, 8, 82944]))
    samples = draw(st.sampled_from([None, 1000, 524_288]))
    for number in range(draw(st.integers(1, 6))):
        epochs = draw(st.lists(SECONDS, min_size=1, max_size=5))
        evaluations = draw(st.lists(SECONDS, max_size=5))
        staging = draw(st.none() | SECONDS)
        whole = sum(epochs) + sum(evaluations) + (staging or 0.0)
        made.append(
            run(number, whole * draw(st.floats(0.9, 2)), mode=mode, system=system, accelerators=count,
                train_samples=samples, epochs=float(draw(st.integers(1, 200))), epochs_s=epochs, staging_s=staging,
                evaluations_s=evaluations, start_unix_s=draw(st.floats(0, 1e6)))
        )  # fmt: skip
    return made


def exact(a: EntryRuns, b: EntryRuns) -> None:
    """The terms add up to the logarithm of the ratio, by groups too."""
    found = decompose(a, b)
    wanted = math.log((a.score_s or 0.0) / (b.score_s or 0.0))
    assert found.total == pytest.approx(wanted, abs=1e-12, rel=1e-12)
    assert math.fsum(found.group(name) for name in GROUPS) == pytest.approx(wanted, abs=1e-12, rel=1e-12)
    assert decompose(b, a).total == pytest.approx(-wanted, abs=1e-12, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from(["time to train", "throughput"]))
def test_terms_add_up(data: st.DataObject, mode: str) -> None:
    a, b = (entry(*data.draw(runs(mode, system))) for system in ("one", "two"))
    exact(a, b)


def test_every_pair_of_the_published_entries_adds_up() -> None:
    found = [each for each in entries_of_runs(published_runs()) if each.score_s is not None]
    pairs = [(a, b) for a in found for b in found if a.key == b.key]
    assert len(pairs) > 800
    for a, b in pairs:
        exact(a, b)


def test_the_terms_are_what_they_say() -> None:
    """Half the accelerators at the same rate, twice the epochs, and no staging."""
    a = entry(
        run(system="slow", accelerators=4, epochs=8.0, staging_s=None, epochs_s=[40.0] + [30.0] * 7,
            evaluations_s=[11.0] + [10.0] * 7, seconds=331.0)
    )  # fmt: skip
    found = decompose(a, entry(run()))
    assert found.terms["epochs"] == pytest.approx(math.log(2))
    assert found.terms["accelerators"] == pytest.approx(math.log(2))
    assert found.terms["rate"] == pytest.approx(0)
    assert found.terms["evaluation"] == pytest.approx(0)
    assert found.terms["first"] == pytest.approx(math.log(331 / 320 / (86 / 80)))
    assert found.terms["staging"] == pytest.approx(math.log(86 / 96))
    assert found.terms["rest"] == pytest.approx(math.log(96 / 100))
    assert found.ratio == pytest.approx(3.31)
    assert found.largest.name in ("epochs", "accelerators")


def test_the_factors_multiply_to_the_time() -> None:
    found = entry(run())
    product = math.prod(value or 1.0 for value in factors(found).values())
    assert product == pytest.approx(100)


def test_what_one_entry_does_not_tell_stays_in_the_rate() -> None:
    found = decompose(entry(run(system="silent", accelerators=None)), entry(run()))
    assert "accelerators" not in found.terms
    assert found.terms["rate"] == pytest.approx(0)


def test_modes_do_not_compare() -> None:
    with pytest.raises(ValueError, match="time to train and throughput do not compare"):
        decompose(entry(run(mode="throughput")), entry(run()))
    with pytest.raises(ValueError, match="has no means"):
        decompose(entry(run(status="aborted")), entry(run()))
