"""The test of convergence beside the official command, and the table of the rules' reference convergence points."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlperf_logging.rcp_checker.rcp_checker import check_directory

from hpcbench.mlperf import convergence_check
from hpcbench.mlperf.convergence_check import RUNS, check_convergence, checker, has_points, reference_at
from hpcbench.mlperf.log_cache import LogCache, Reading
from staging.errors import InputError

PUBLISHED = [  # ruleset, application, batch, olympic mean, least accepted, kept by pruning
    ("3.0.0", "cosmoflow", 32, 7.8710, 7.3217, True), ("3.0.0", "cosmoflow", 64, 18.2778, 17.7586, False),
    ("3.0.0", "cosmoflow", 128, 17.8889, 17.4729, False), ("3.0.0", "cosmoflow", 512, 22.8333, 22.1995, True),
    ("3.0.0", "cosmoflow", 1024, 40.0556, 38.4628, True), ("3.0.0", "deepcam", 128, 6.9444, 6.3088, True),
    ("3.0.0", "deepcam", 256, 9.0000, 9.0000, False), ("3.0.0", "deepcam", 512, 11.0526, 9.9106, False),
    ("3.0.0", "deepcam", 1024, 13.0000, 12.4450, True), ("3.0.0", "deepcam", 2048, 22.6250, 21.1102, True),
    ("1.0.0", "cosmoflow", 128, 17.8889, 17.4729, True), ("1.0.0", "deepcam", 256, 9.0000, 9.0000, True),
]  # fmt: skip


@pytest.mark.parametrize(("ruleset", "application", "batch", "mean", "least", "kept"), PUBLISHED)
def test_the_points_of_the_rules(
    ruleset: str, application: str, batch: int, mean: float, least: float, kept: bool
) -> None:
    found = check_convergence(application, ruleset, batch, [mean] * 5, pruned=False)
    assert found.reference_kind == "point"
    assert found.reference_epochs == pytest.approx(mean, abs=5e-5)
    assert found.least_epochs == pytest.approx(least, abs=1e-4)
    assert (batch in {point["BS"] for point in checker(application, ruleset).pruned_rcp_data.values()}) == kept


def write_logs(folder: Path, application: str, batch: int, epochs: list[float | None]) -> None:
    """Logs that have what the official command reads."""
    folder.mkdir()
    for number, each in enumerate(epochs):
        lines = [
            {"key": "submission_benchmark", "value": application, "metadata": {}},
            {"key": "global_batch_size", "value": batch, "metadata": {}},
            {"key": "eval_error", "value": 0.1, "metadata": {"epoch_num": 99 if each is None else each}},
            {"key": "run_stop", "value": None, "metadata": {"status": "aborted" if each is None else "success"}},
        ]
        text = "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)
        (folder / f"result_{number}.txt").write_text(text)


@pytest.mark.slow
@given(
    application=st.sampled_from(sorted(RUNS)),
    ruleset=st.sampled_from(["1.0.0", "2.0.0", "3.0.0"]),
    batch=st.sampled_from([1, 16, 32, 48, 64, 96, 128, 200, 256, 512, 700, 1024, 1500, 2048, 4096]),
    factor=st.floats(0.8, 1.3),
    spread=st.floats(0, 0.1),
    count=st.integers(3, 12),
    lost=st.integers(0, 2),
    seed=st.integers(0, 999),
)
@settings(max_examples=150)
def test_the_verdict_is_that_of_the_official_command(
    tmp_path_factory: pytest.TempPathFactory, application: str, ruleset: str, batch: int, factor: float, spread: float,
    count: int, lost: int, seed: int,
) -> None:  # fmt: skip
    if not has_points(application, ruleset):
        return
    draw = random.Random(seed)
    near = check_convergence(application, ruleset, batch, [1.0] * 3).reference_epochs or 10.0
    epochs: list[float | None] = [near * factor * (1 + spread * draw.uniform(-1, 1)) for _ in range(count)]
    epochs[:lost] = [None] * lost
    folder = tmp_path_factory.mktemp("entry") / application
    write_logs(folder, application, batch, epochs)
    passed, message, norm = check_directory(str(folder), "hpc", ruleset, False, False, rcp_pass="pruned_rcps")
    found = check_convergence(application, ruleset, batch, epochs)
    assert found.passed == passed, message
    if found.mean_epochs is not None and found.least_epochs is not None:
        assert found.factor == pytest.approx(norm, rel=1e-12)
    assert (found.mean_epochs is None) == (message == "Insufficient convergence")
    assert (found.reference_kind == "point") == (message == "RCP found") or found.mean_epochs is None
    assert (found.reference_kind == "interpolated") == (message == "RCP Interpolation") or found.mean_epochs is None


def test_the_finding_is_a_sentence() -> None:
    good = check_convergence("cosmoflow", "3.0.0", 1024, [40, 39, 39, 40, 41])
    assert good.words == "39.67 epochs, the reference 40.06, least accepted 38.46: accepted, normalised by 1.0098"
    assert "too fast" in check_convergence("cosmoflow", "3.0.0", 1024, [30.0] * 10).words
    assert "the interpolated reference" in check_convergence("deepcam", "3.0.0", 200, [9.0] * 5).words
    assert "one must be submitted" in check_convergence("deepcam", "3.0.0", 4096, [9.0] * 5).words
    assert "more than one run" in check_convergence("deepcam", "3.0.0", 128, [9, None, None]).words


@pytest.mark.parametrize(("application", "ruleset", "count", "message"), [
    ("resnet", "3.0.0", 5, "ruleset 3.0.0 has no reference convergence points of resnet"),
    ("openfold", "2.0.0", 5, "ruleset 2.0.0 has no reference convergence points of openfold"),
    ("deepcam", "0.7.0", 5, "ruleset 0.7.0 is not one of 1.0.0, 2.0.0, 3.0.0"),
    ("deepcam", "3.0.0", 2, "an olympic mean needs at least 3 runs, not 2"),
])  # fmt: skip
def test_bad_input_is_one_line(application: str, ruleset: str, count: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_convergence(application, ruleset, 128, [9.0] * count)


@pytest.mark.parametrize("batch", [128, 200, 4096, 16])
def test_a_reference_in_the_cache_needs_no_checker(batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the official checker takes longer than reading thousands of logs from the cache."""
    cache, epochs = LogCache(tmp_path / "logs.sqlite"), [9.0] * 5
    expected = check_convergence("deepcam", "3.0.0", batch, epochs)
    assert check_convergence("deepcam", "3.0.0", batch, epochs, log_cache=cache) == expected
    reference_at.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(convergence_check, "checker", None)
        assert check_convergence("deepcam", "3.0.0", batch, epochs, log_cache=cache) == expected
        with pytest.raises(TypeError, match="NoneType"):
            check_convergence("deepcam", "3.0.0", batch + 1, epochs, log_cache=cache)
    reading = Reading(("reference", "deepcam", "3.0.0", str(batch), "pruned_rcps"), ())
    cache.put([(reading, reading.stamp(), {"found": "point"})])
    reference_at.cache_clear()
    assert check_convergence("deepcam", "3.0.0", batch, epochs, log_cache=cache) == expected
