"""What a page lists is all that there is, and what it says of all holds for all."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

from hpcbench.application import applications
from hpcbench.batch.job_request import JobRequest
from hpcbench.campaign import rules
from hpcbench.cli import bundle, demo
from hpcbench.cli.arguments import Parser
from hpcbench.cli.campaign import add_run_arguments
from hpcbench.cli.commands import COMMANDS
from hpcbench.config.schema import StagingConfig
from hpcbench.study.scaling.request import DECIDED, OF_BATCH

ROOT = Path(__file__).parents[2]


def section(page: str, title: str) -> str:
    """The text of a section of a page."""
    return (ROOT / page).read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_settings_that_are_no_axis_of_a_scaling_study_are_named() -> None:
    exceptions = section("docs/scaling.md", "Further axes").partition("Any other setting can be an axis, too,")[2]
    assert set(re.findall(r"`(\w+\.\w+)`", exceptions)) == {*DECIDED, *OF_BATCH}


def test_every_preset_is_in_the_table_of_presets() -> None:
    table = [row for row in section("README.md", "Presets").splitlines() if row.startswith("|")]
    listed = {name for row in table for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    numbers = {int(name.removeprefix("mlperf-")) for name in listed if name.startswith("mlperf-")}
    assert "`mlperf-32` to `mlperf-2048`" in "".join(table)
    for application in applications().values():
        for preset in {*application.presets()} - listed:
            batch = re.fullmatch(r"mlperf-(\d+)(-v1\.0)?", preset)
            assert batch is not None, preset
            assert min(numbers) <= int(batch[1]) <= max(numbers)


def test_every_command_is_among_the_commands() -> None:
    text = section("README.md", "Commands")
    assert [name for name in COMMANDS if f"hpcbench {name} " not in text and f"`{name}`" not in text] == []


def test_how_often_a_job_starts_and_when_it_is_warned_are_the_defaults() -> None:
    text = " ".join(section("docs/running-on-a-supercomputer.md", "What happens in the job").split())
    assert f"(`--warn-s`, {JobRequest().warn_s} s)" in text
    assert f"started `--attempts` times in all ({JobRequest().attempts})" in text


def test_every_key_of_a_file_of_rules_is_in_the_table() -> None:
    text = section("docs/campaigns.md", "Rules of your own")
    kinds = [kind for kind in vars(rules).values() if is_dataclass(kind) and kind.__module__ == rules.__name__]
    assert len(kinds) == 12
    names = {field.name for kind in kinds for field in fields(kind)}
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_runs_of_a_campaign_read_the_dataset_where_it_lies() -> None:
    parser = Parser("hpcbench campaign run", "")
    add_run_arguments(parser)
    assert not parser.parse_strictly(["nersc10-deepcam", "--campaign-dir", "c"]).stage
    text = " ".join(section("docs/campaigns.md", "A campaign on a machine").split())
    assert "they read the dataset where it lies; with `--stage`, each job stages it" in text


def test_every_setting_of_staging_is_in_its_section() -> None:
    text = section("docs/staging.md", "Within a training")
    named = set(re.findall(r"(?:`|--staging)\.(\w+)", text))
    assert {field.name for field in fields(StagingConfig)} - named == set()


def test_extras_that_fit_no_bundle_are_not_recommended_for_one() -> None:
    """As their wheels are: llvmlite 0.50 alone has 60 MB, and a bundle without extras about 90 of the 120 allowed."""
    named = re.search(
        r"`(\w+)` \(LLVM, 60 MB\) and `(\w+)` do not fit", section("docs/installing.md", "Without a network")
    )
    parser = Parser("hpcbench bundle", bundle.DESCRIPTION)
    bundle.add_arguments(parser)
    assert named is not None
    assert not {*named.groups()} & set(re.findall(r"\w+", parser.format_help()))


def test_the_demo_takes_as_long_by_its_help_as_by_the_page() -> None:
    (minutes,) = re.findall(r"It takes ([\w ]+ minutes) on two cores", " ".join(section("README.md", "Start").split()))
    assert f"both applications, in {minutes} on two cores" in demo.DESCRIPTION
