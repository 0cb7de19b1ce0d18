"""The sizes of the published sets on all pages are those that the applications compute from their counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apps.deepcam.sizes import PUBLISHED_FILES
from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.planning.dataset_size import DatasetSize, dataset_size, sample_size

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/running-on-a-supercomputer.md"
TB, GB = 10**12, 10**9


def published(name: str) -> DatasetSize:
    """Of the preset with the published counts."""
    application = find_application(name)
    found = dataset_size(application, resolve(application, "mlperf"))
    assert found is not None
    return found


def whole_deepcam() -> int:
    """Bytes of all files, with those for tests."""
    application = find_application("deepcam")
    each = sample_size(application, resolve(application, "mlperf"))
    assert each is not None
    return PUBLISHED_FILES * each.total


def test_the_sets_have_their_published_sizes() -> None:
    cosmoflow, deepcam = published("cosmoflow"), published("deepcam")
    assert (cosmoflow.train_samples, cosmoflow.validation_samples) == (524_288, 65_536)
    assert (deepcam.train_samples, deepcam.validation_samples) == (121_266, 15_158)
    assert whole_deepcam() / TB == pytest.approx(9.66, abs=0.005)
    assert whole_deepcam() / 2**40 == pytest.approx(8.8, abs=0.05)
    assert deepcam.train_bytes / TB == pytest.approx(7.7, abs=0.05)
    assert cosmoflow.validation_bytes / GB == pytest.approx(185, abs=0.5)
    assert cosmoflow.total / TB == pytest.approx(1.67, abs=0.005), "published as 1.7 TB"


def written(size: float, words: str) -> bool:
    """Whether ``words``, such as ``7.7 TB``, are ``size`` rounded to their digits."""
    number, unit = words.split()
    places = len(number.partition(".")[2])
    return f"{size / {'TB': TB, 'GB': GB, 'TiB': 2**40}[unit]:.{places}f}" == number


def test_every_size_on_the_page_is_one_of_these() -> None:
    cosmoflow, deepcam = published("cosmoflow"), published("deepcam")
    sizes = [
        cosmoflow.total, cosmoflow.validation_bytes, cosmoflow.train_bytes / 16, deepcam.total, deepcam.train_bytes,
        deepcam.validation_bytes, deepcam.train_bytes / 10, deepcam.train_bytes / 10 + deepcam.validation_bytes,
        whole_deepcam(), 128 * GB, 3.2 * TB,
    ]  # fmt: skip
    found = re.findall(r"\b\d[\d.]*\s+(?:TB|TiB|GB)\b", PAGE.read_text(encoding="utf-8"))
    assert len(found) >= 12
    assert [words for words in found if not any(written(size, words) for size in sizes)] == []


PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("apps/*/README.md"), *ROOT.glob("hpcbench/cli/*.py"),
         *ROOT.glob("apps/*/configs/*.yaml")]  # fmt: skip
WRONG = ("8.8 TB", "6.9 TB", "170 GB", "1.6 TB")
"""TiB called TB, training samples without their labels, and sums that were rounded twice."""


def test_no_page_has_another_size() -> None:
    found = [(path.name, size) for path in PAGES for size in WRONG if size in path.read_text(encoding="utf-8")]
    assert found == []
    assert "1.67 TB dataset" in (ROOT / "apps/cosmoflow/configs/mlperf.yaml").read_text(encoding="utf-8")
    assert "9.66 TB (8.8 TiB) dataset" in (ROOT / "apps/deepcam/configs/mlperf.yaml").read_text(encoding="utf-8")
