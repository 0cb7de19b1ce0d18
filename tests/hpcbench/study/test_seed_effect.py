"""Seeds of a batch size are its own; where they are not, an effect of the seed over batch sizes is looked for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpcbench.application import find_application
from hpcbench.study.convergence import read_statuses
from hpcbench.study.definition import Study, grow
from hpcbench.study.epoch_comparison import p_value
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.folder import StudyFolder
from hpcbench.study.plan import PlannedRun, Point, study_run, training_seed
from hpcbench.study.request import Request, define
from hpcbench.study.results import read_rows
from hpcbench.study.seed_effect import LEVEL, seed_effect, seed_notes
from tests.hpcbench.study.conftest import FakeLauncher, make

STUDIES = 200
BATCHES = (8, 16, 32, 64, 128, 256)


def test_a_new_study_has_other_seeds_at_every_batch(study: Study) -> None:
    new = define(find_application("cosmoflow"), Request("smoke", "8,32", "sgd,adamw", 2), {})
    assert new.own_seeds
    points = [Point(batch, name) for batch in (8, 32) for name in ("sgd", "adamw")]
    seeds = {point: [training_seed(new, PlannedRun(point, 1.0, seed)) for seed in (0, 1, 2)] for point in points}
    assert seeds[Point(32, "sgd")] == [3_200_000, 3_200_001, 3_200_002] == seeds[Point(32, "adamw")]
    assert not set(seeds[Point(8, "sgd")]) & set(seeds[Point(32, "sgd")])
    assert study_run(new, PlannedRun(Point(32, "sgd"), 1.0, 2)).settings["train.seed"] == "3200002"
    assert training_seed(new, PlannedRun(Point(10**9, "sgd"), 1.0, 9)) < 2**32


def test_a_study_that_is_continued_keeps_its_seeds(study: Study) -> None:
    assert not study.own_seeds, "as a definition without the field"
    grown = grow(study, replace(study, own_seeds=True, seeds=3), Path("study"))
    assert (grown.seeds, grown.own_seeds) == (3, False)
    assert study_run(grown, PlannedRun(Point(32, "sgd"), 1.0, 2)).settings["train.seed"] == "2"


def simulated(random: np.random.Generator, part: float, seeds: int = 3) -> list[list[EpochRun]]:
    """Six batches of which ``part`` of the variance is an effect of the seed, with evaluations and missed targets."""
    effect, rows = random.normal(size=seeds), []
    for place, batch in enumerate(BATCHES):
        noise = math.sqrt(part) * effect + math.sqrt(1 - part) * random.normal(size=seeds)
        ends = np.ceil(8 * (3 + place) * np.exp(0.15 * noise)) / 8
        rows.append([EpochRun(batch, 8, math.inf) if end > 8 else EpochRun(batch, end - 1 / 8, end) for end in ends])
    return rows


@pytest.mark.parametrize(("part", "least", "most"), [(0.0, 0.01, 0.10), (0.75, 0.8, 1.0)])
def test_an_effect_of_the_seed_is_found_where_there_is_one(part: float, least: float, most: float) -> None:
    random = np.random.default_rng(4)
    found = [seed_effect([simulated(random, part), simulated(random, part)]) for _ in range(STUDIES)]
    assert least <= np.mean([p is not None and p <= LEVEL for p in found]) <= most


def test_seeds_that_two_series_share_make_a_comparison_find_less() -> None:
    """Equal series whose runs have half of their variance in common, batch by batch."""
    random = np.random.default_rng(6)

    def rows(common: np.ndarray) -> list[list[EpochRun]]:
        noise = math.sqrt(0.5) * common + math.sqrt(0.5) * random.normal(size=common.shape)
        ends = np.ceil(8 * np.arange(3, 9)[:, None] * np.exp(0.15 * noise)) / 8
        return [[EpochRun(8, end - 1 / 8, end) for end in row] for row in ends]

    told_apart = 0
    for _ in range(3 * STUDIES):
        common = random.normal(size=(len(BATCHES), 3))
        told_apart += p_value(list(zip(rows(common), rows(common), strict=True))) <= LEVEL
    assert told_apart / (3 * STUDIES) < 0.8 * LEVEL, "of independent runs it would be 0.05"


def test_without_two_batches_of_which_seeds_differ_nothing_is_tested() -> None:
    tie = [EpochRun(8, 2.0, 3.0)] * 3
    assert seed_effect([]) is None
    assert seed_effect([[tie, tie]]) is None
    assert seed_effect([[tie, [*tie[:2], EpochRun(8, 3.0, 4.0)]]]) is None


@pytest.mark.parametrize(("slow", "said"), [(True, "and some are fast or slow at all"), (False, "no seed is found")])
def test_the_page_says_whether_seeds_matter(study: Study, tmp_path: Path, slow: bool, said: str) -> None:
    wide = replace(study, batch_sizes=BATCHES, seeds=4, settings={"train.max_epochs": "24"})

    def epochs(settings: dict[str, str]) -> float:
        seed, batch = int(settings["train.seed"]), int(settings["optim.base_batch_size"])
        return 4.0 + (seed if slow else (seed * batch // 8 * 5 + batch.bit_length()) % 4)

    folder = StudyFolder(tmp_path / "study")
    make(wide, folder, FakeLauncher(epochs))
    rows = read_rows(wide, read_statuses(wide, folder))
    (note,) = seed_notes(wide, rows)
    assert said in note
    assert not seed_notes(replace(wide, own_seeds=True), rows)
