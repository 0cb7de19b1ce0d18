"""Profiles of sites: those of the suite are whole, and a user's own are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.batch import site as site_module
from hpcbench.batch.launchers import LAUNCHERS
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.site import PROFILES, find_site, known_sites, read_site
from staging.errors import InputError

GOOD = "title: mine\nscheduler: slurm\nlauncher: srun\n"


def test_the_schedulers_that_a_profile_may_name_are_those_that_there_are() -> None:
    assert set(site_module.SCHEDULERS) == set(SCHEDULERS)


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_profile_of_the_suite_names_its_pages(path: Path) -> None:
    site = read_site(path)
    assert site.name == path.stem
    assert site.scheduler in SCHEDULERS
    assert site.launcher in LAUNCHERS
    generic = site.name.startswith("generic") or site.name == "local"
    assert bool(site.pages) is not generic
    assert all(page.startswith("https://") for page in site.pages)
    assert site.notes.endswith(".")
    assert generic or site.node.gpus > 0


def test_machines_and_schedulers_that_are_known() -> None:
    names = set(known_sites({"HPCBENCH_SITES": "/nowhere"}))
    assert {"perlmutter-gpu", "frontier", "aurora", "polaris", "juwels-booster", "leonardo-booster", "lumi-g"} < names
    assert {"generic-slurm", "generic-pbs", "generic-lsf", "generic-flux", "local"} < names
    assert {read_site(PROFILES / f"{name}.yaml").scheduler for name in names} == set(SCHEDULERS)


def test_nodes_are_as_published() -> None:
    """Cores that jobs may use, and GPUs as programs count them."""
    nodes = {name: find_site(name).node for name in ("perlmutter-gpu", "frontier", "polaris", "lumi-g", "summit")}
    assert {name: (node.cores, node.gpus) for name, node in nodes.items()} == {
        "perlmutter-gpu": (64, 4), "frontier": (56, 8), "polaris": (32, 4), "lumi-g": (56, 8), "summit": (42, 6),
    }  # fmt: skip


def test_jobs_in_the_queue_are_as_published() -> None:
    """The most that a site's page lets a user have in the profile's queue; absent where the page names no figure."""
    found = {path.stem: read_site(path).most_jobs for path in PROFILES.glob("*.yaml")}
    assert {name: most for name, most in found.items() if most is not None} == {
        "aurora": 1, "frontier": 100, "lumi-g": 210, "polaris": 1, "summit": 100,
    }  # fmt: skip


def test_a_profile_of_ones_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "frontier.yaml").write_text(GOOD)
    environ = {"HPCBENCH_SITES": str(tmp_path)}
    assert find_site("frontier", environ).title == "mine"
    assert find_site("polaris", environ).title != "mine"
    assert find_site(str(tmp_path / "frontier.yaml"), environ).name == "frontier"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title: x\nscheduler: slurm\n", "lacks 'launcher'"),
        (GOOD + "quue: x\n", "unknown key 'quue'; did you mean 'queue'"),
        (GOOD + "node: {core: 3}\n", "node.unknown key 'core'; did you mean 'cores'"),
        (GOOD + "node: {cores: many}\n", r"node.cores \(many\) must be a whole number or null"),
        (GOOD + "node: {cores: -1}\n", r"node.cores \(-1\) must be at least 1; choose from 1 to 1000000"),
        (GOOD + "node: {memory_gib: 1e400}\n", r"node.memory_gib \(1e400\) must be a whole number"),
        (GOOD + "node: {gpus: 9999999999}\n", r"node.gpus \(9999999999\) must be at most 1024"),
        (GOOD + "max_time: 12:00:00\n", r"line 4: 12:00:00 without quotes counts in sixties; put it in quotes"),
        (GOOD + "node: 3\n", "must hold keys and values"),
        (GOOD + "whole_nodes: 1\n", "must be true or false"),
        (GOOD + "directives: --x\n", "must be a list of texts"),
        (GOOD + "directives: [--clusters=cm4]\n", r"\(--clusters=cm4\) would .*; leave it out, and set SLURM_CLUS"),
        (GOOD + "directives: ['-M cm4']\n", r"\(-M cm4\) would submit jobs to a cluster where squeue and"),
        (GOOD + "environment: {A: 1}\n", r"environment.A \(1\) must be a text; put it in quotes"),
        (GOOD.replace("slurm", "sge"), "must be one of slurm, pbs, lsf, flux, local"),
        (GOOD + "max_time: long\n", "must be a time"),
        (GOOD + "queue: a b\n", "has the character ' '"),
        (GOOD + "local_path: $(x)\n", "begins no variable"),
        ("- 1\n", "holds a list"),
    ],
)
def test_a_bad_profile_is_told_in_a_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_site(tmp_path / "mine.yaml")


def test_an_unknown_site_is_told_with_the_nearest() -> None:
    with pytest.raises(
        InputError, match=r"unknown site 'frontir'; did you mean 'frontier'\? Your own would be .*/frontir.yaml"
    ):
        find_site("frontir")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nersc", r"unknown site 'nersc'; did you mean 'perlmutter-gpu', which is Perlmutter, GPU nodes \(NERSC\)\?"),
        ("OLCF", r"unknown site 'OLCF'; OLCF is in the title of frontier, summit\. Your own"),
        ("lum", r"unknown site 'lum'; did you mean 'lumi-g'\?"),
        ("(", r"unknown site '\('; "),
    ],
)
def test_an_unknown_site_may_be_a_word_of_a_title(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_site(name)


def test_a_profile_that_cannot_be_read_hides_no_title(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("title: [\n")
    with pytest.raises(InputError, match="did you mean 'perlmutter-gpu'"):
        find_site("nersc", {"HPCBENCH_SITES": str(tmp_path)})
