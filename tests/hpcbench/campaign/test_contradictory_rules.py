"""Files of rules that contradict themselves are refused with line and field: copies of NERSC-10's with one change."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.campaign import check_recipe
from hpcbench.campaign.entry import Entry, base_config
from hpcbench.campaign.read_rules import CAMPAIGNS, read_campaign
from hpcbench.config.schema import RunConfig
from staging.errors import InputError

RECIPE = "      train.checkpoint_every: 0\n    dataset:"
"""The end of the recipe."""
SMALL = "        train.checkpoint_every: 0\n    notes:"
"""The end of the rehearsal's settings."""
UNTIL = "      epochs: 64\n      target: 0.80\n"


def settings(place: str, *lines: str) -> tuple[str, str]:
    """The end of some settings, and the same with more of them before it."""
    indent = " " * (len(place) - len(place.lstrip()))
    return place, "".join(f"{indent}{line}\n" for line in lines) + place


def read_changed(root: Path, old: str, new: str) -> str:
    """What is said of the copy, with the line in words."""
    text = (CAMPAIGNS / "nersc10-deepcam.yaml").read_text()
    assert text.count(old) == 1
    path = root / "mine.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError) as error:
        read_campaign(path)
    where, _, said = str(error.value).partition(": ")
    assert where.startswith(f"{path}, line ")
    assert "\n" not in said
    line = path.read_text().splitlines()[int(where.rpartition(" ")[2]) - 1]
    return f"{line.strip()} | {said}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (settings(RECIPE, "train.precision: bf16-mixed"),
         "train.precision: bf16-mixed | scenarios[0].recipe.train.precision: train.precision is bf16-mixed, but "
         "category baseline allows 32-true; change one of them"),
        (settings(RECIPE, "train.tf32: true"),
         "train.tf32: true | scenarios[0].recipe.train.tf32: train.tf32 is true, but category baseline allows null or "
         "false; change one of them"),
        (settings(RECIPE, "parallel.reduce_dtype: float16"),
         "parallel.reduce_dtype: float16 | scenarios[0].recipe.parallel.reduce_dtype: parallel.reduce_dtype is "
         "float16, but category baseline allows gradient; change one of them"),
        (settings(RECIPE, "train.seed: 7"), "train.seed: 7 | scenarios[0].recipe.train.seed is for the campaign to "
         "draw, from the clock; leave it out"),
        (settings(SMALL, "train.seed: 7"), "train.seed: 7 | scenarios[0].rehearsal.settings.train.seed is for the "
         "campaign to draw, from the clock; leave it out"),
        (settings(RECIPE, "train.accumulation: 4"),
         "train.accumulation: 4 | scenarios[0].recipe.train.accumulation: train.accumulation is 4, but "
         "batch.accumulation is not true; change one of them"),
        (settings(SMALL, "train.accumulation: 2"),
         "train.accumulation: 2 | scenarios[0].rehearsal.settings.train.accumulation: train.accumulation is 2, but "
         "batch.accumulation is not true; change one of them"),
        (("      metric_epochs: 1\n", ""),
         "rehearsal: | scenarios[0].rehearsal lacks 'metric_epochs', which metric.what (seconds_of_epochs) needs; add"),
        (("      metric_epochs: 1\n", "      metric_epochs: 3\n"),
         "metric_epochs: 3 | scenarios[0].rehearsal.metric_epochs (3) is more than the rehearsal's epochs (2); change"),
        (("      nodes: [1, 2]\n", "      nodes: []\n"),
         "nodes: [] | scenarios[0].rehearsal.nodes ([]) must have at least one number of nodes, from 1 on"),
        (("      nodes: [1, 2]\n", "      nodes: [1, 0]\n"),
         "nodes: [1, 0] | scenarios[0].rehearsal.nodes ([1, 0]) must have at least one number of nodes, from 1 on"),
        ((UNTIL, "      epochs: 64\n"), "validity: [target, epochs, samples] | scenarios[0].validity has target, but "
         "stop.target is not set; set it, or leave target out"),
        (("[train.accumulation]", "[train.checkpoint_every, train.accumulation]"),
         "- settings: [train.checkpoint_every, train.accumulation] | scenarios[0].rules[2].settings: rules[1] names "
         "train.checkpoint_every in category baseline, too; leave one of them"),
        (("        categories: [ported, optimized]\n", "        categories: [ported, baseline]\n"),
         "- settings: [optim, schedule] | scenarios[0].rules[4].settings: rules[3] names optim in category baseline,"),
        (("  - name: ported\n", "  - name: ../esc a\n"),
         "- name: ../esc a | categories[1].name ('../esc a') must be lower-case letters, digits and - : it names a"),
    ],
)  # fmt: skip
def test_it_is_refused_at_its_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert said in read_changed(tmp_path, *change)


def test_a_preset_may_be_what_contradicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is that of the preset, where the recipe does not name the setting."""

    def accumulates(entry: Entry) -> RunConfig:
        config = base_config(entry)
        config.train.accumulation = 4
        return config

    monkeypatch.setattr(check_recipe, "base_config", accumulates)
    said = read_changed(tmp_path, "title: NERSC-10 DeepCAM", "title: Ours")
    assert said.startswith("preset: mlperf-2048 | scenarios[0].preset: train.accumulation is 4, but batch.accumul")
