"""What a sample costs to read, on a small dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcbench.application import find_application
from hpcbench.characterisation import input_cost
from hpcbench.characterisation.input_cost import describe_input, io_counts
from hpcbench.config.resolve import resolve
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
    if io_counts() is None:
        pytest.skip("this system counts no reads of a process (/proc/self/io)")
    # The first of two looks at the counters is itself a read.
    assert reading.bytes == pytest.approx(sum(sizes) / 16, abs=100)
    assert reading.calls is not None
    assert 1 <= reading.calls < 4


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
