"""What a sample costs to read, on a small dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcbench.application import find_application
from hpcbench.characterisation import input_cost
from hpcbench.characterisation.input_cost import describe_input, io_counts, with_io
from hpcbench.characterisation.tiers import tier_of
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh import empty_axes
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.planning.dataset_size import DatasetSize
from staging.errors import InputError

CPU = torch.device("cpu")


def test_a_sample_is_read_once_and_whole(small_cosmos: Path) -> None:
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides={"data.root": str(small_cosmos)})
    found = describe_input(application, config, CPU, 65_552.0, read=True)
    sizes = [path.stat().st_size for path in (small_cosmos / "train").glob("*.tfrecord")]
    assert (found.form, found.train_samples, found.validation_samples, found.files) == ("tfrecord, gzip", 16, 4, 1)
    assert found.stored_bytes == pytest.approx(sum(sizes) / 16)
    reading = found.reading
    assert reading is not None
    assert reading.samples == 16
    assert min(reading.read_s, reading.processor_s, reading.prepare_s) > 0
    assert reading.tier == tier_of(small_cosmos)
    if io_counts() is None:
        pytest.skip("this system counts no reads of a process (/proc/self/io)")
    assert reading.bytes == pytest.approx(sum(sizes) / 16, abs=100)
    assert reading.calls is not None
    assert 1 <= reading.calls < 4


@pytest.mark.parametrize(("form", "share"), [("npy", 0.5), ("tfrecord", 1.0)])
def test_a_rank_that_shares_samples_reads_its_part_where_the_form_allows_it(
    form: str, share: float, tmp_path: Path
) -> None:
    """npy files are read by rows; records only whole."""
    root = str(tmp_path / "cosmos")
    small = ["--simulate.train_samples", "4", "--simulate.validation_samples", "2", "--processes", "1"]
    assert (
        main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--data.format", form, "--out", root, *small]) == 0
    )
    application = find_application("cosmoflow")
    settings = {"data.root": root, "data.format": form, "data.augment": False, "data.apply_log": True}
    config = resolve(application, "smoke", overrides=settings)
    whole = input_cost.measure_reading(application, config, CPU)
    part = input_cost.measure_reading(application, config, CPU, empty_axes(mesh_shape(2, "2"), 1))
    if whole.bytes is None or part.bytes is None:
        pytest.skip("this system counts no reads of a process (/proc/self/io)")
    assert part.bytes == pytest.approx(share * whole.bytes, rel=0.05)


def test_the_median_of_several_passes_counts(small_cosmos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over 16 samples of 160, 32 and 16 ms, of which the processor worked half."""
    times = iter([(0.160, 0.080), (0.032, 0.016), (0.016, 0.008)])
    monkeypatch.setattr(input_cost, "read_seconds", lambda training, samples: next(times))
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides={"data.root": str(small_cosmos)})
    reading = input_cost.measure_reading(application, config, CPU)
    assert (reading.read_s, reading.processor_s) == pytest.approx((2e-3, 1e-3))


@pytest.mark.parametrize(
    ("settings", "landed"),
    [({}, None), ({"staging.transform": "gunzip"}, None), ({"staging.destination": "/nvme"}, None),
     ({"staging.transform": "gunzip", "staging.destination": "/nvme"}, True)],
)  # fmt: skip
def test_what_staging_lands_is_larger_than_what_is_stored(settings: dict[str, str], landed: bool | None) -> None:
    """A published sample is 128^3 positions with 4 numbers of 2 bytes, of which gzip makes 2.83 MB."""
    application = find_application("cosmoflow")
    found = describe_input(application, resolve(application, "mlperf", overrides=settings), CPU, 1.0, read=False)
    assert found.stored_bytes == 2_830_000
    assert found.landed_bytes == (pytest.approx(128**3 * 8, rel=1e-3) if landed else None)


def test_without_a_dataset_the_form_says_the_bytes() -> None:
    application = find_application("cosmoflow")
    found = describe_input(application, resolve(application, "mlperf"), CPU, 1.0, read=True)
    # The published set: 1.67 TB of 524,288 + 65,536 samples.
    assert found.stored_bytes == 2_830_000
    assert (found.train_samples, found.validation_samples) == (524_288, 65_536)
    assert (found.files, found.reading) == (None, None)


def test_a_dataset_of_nothing_has_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    application = find_application("cosmoflow")
    for size, stored in ((DatasetSize(0, 0, 0, 0, "files"), 2_830_000), (DatasetSize(8, 0, 0, 0, "files"), None)):
        monkeypatch.setattr(input_cost, "dataset_size", lambda *given, size=size: size)
        found = describe_input(application, resolve(application, "mlperf"), CPU, 1.0, read=False)
        assert (found.train_samples, found.stored_bytes) == (size.train_samples or None, stored)


def test_a_dataset_that_is_not_there() -> None:
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides={"data.root": "nowhere"})
    with pytest.raises(InputError, match="nowhere"):
        describe_input(application, config, CPU, 1.0, read=False)


def test_a_look_at_the_counters_is_no_read_of_the_samples(tmp_path: Path) -> None:
    """The counters are a file of the process, too; its text may be a digit or two longer at the next look."""
    if io_counts() is None:
        pytest.skip("the system does not count what a process reads")
    (tmp_path / "sample").write_bytes(bytes(5000))

    def read() -> int:
        with (tmp_path / "sample").open("rb", buffering=0) as file:
            return len(file.read(5000))

    size, counted = with_io(read)
    assert counted is not None
    assert (size, counted[1]) == (5000, 1)
    assert counted[0] == pytest.approx(5000, abs=8)
