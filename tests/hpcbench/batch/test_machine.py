"""Facts of machines: each has its source and date, and a bad file is told in a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcbench.batch.machine import MACHINES, Machine, find_machine, known_machines, published_machine, read_machine
from hpcbench.batch.site import PROFILES, read_site
from hpcbench.cli.main import main
from staging.errors import InputError

GOOD = """\
title: ours
cores: 8
storage:
  - {path: $TMPDIR, gb: 100}
  - {path: $TMPDIR/fast, gb: 10, in_memory: true}
sources:
  - {url: "https://example.org", read: 2026-11-23, facts: [cores, storage.$TMPDIR, storage.$TMPDIR/fast]}
"""
DOCS = Path(__file__).parents[3] / "docs" / "running-on-a-supercomputer.md"


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_fact_of_the_suite_has_a_page_and_a_date(path: Path) -> None:
    machine = read_machine(path)
    assert [name for name, _ in machine.facts()], "a machine has facts"
    for name, _ in machine.facts():
        source = machine.source_of(name)
        assert source.url.startswith("https://")
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", source.read)


def test_every_profile_of_a_machine_names_it_and_has_no_fact_twice() -> None:
    named = {path.stem: path.read_text() for path in PROFILES.glob("*.yaml")}
    alone = {name for name in named if name.startswith("generic") or name == "local"}
    assert {name for name, text in named.items() if f"machine: {name}\n" in text} == named.keys() - alone
    assert not [name for name, text in named.items() if "\nnode:" in text]
    assert {path.stem for path in MACHINES.glob("*.yaml")} >= named.keys() - alone


def test_facts_that_the_pages_state() -> None:
    perlmutter, polaris, summit = (find_machine(name, [MACHINES]) for name in ("perlmutter-gpu", "polaris", "summit"))
    shm, scratch = perlmutter.storage_at("/dev/shm"), polaris.storage_at("/local/scratch/me")
    assert shm is not None
    assert (shm.gb, shm.in_memory, perlmutter.accelerator_memory_gib) == (128, True, 40)
    assert scratch is not None
    assert (scratch.gb, scratch.in_memory, polaris.accelerator_link_gb_s) == (3200, False, 100)
    assert summit.storage_at("/mnt/bb/$USER") == summit.storage[0]
    assert summit.storage_at("/mnt/bbb") is None


def test_accelerators_have_the_memory_of_the_nodes_that_a_constraint_asks_for() -> None:
    perlmutter, polaris = (find_machine(name, [MACHINES]) for name in ("perlmutter-gpu", "polaris"))
    asked = {
        "gpu": 40, "gpu&hbm80g": 80, "hbm80g": 80, "[gpu|hbm80g]*2": 40, "gpu|hbm80g": 40, "hbm80gb": 40, "": 40,
        "gpu&hbm80g&(a|b)": 80, "(hbm80g)&gpu": 80, "gpu&(hbm80g|ssd)": 40, "!hbm80g": 40, "^hbm80g": 40,
    }  # fmt: skip
    assert {each: perlmutter.memory_of_accelerator(each) for each in asked} == asked
    assert polaris.memory_of_accelerator("hbm80g") == 40
    assert Machine("unknown", "unknown").memory_of_accelerator("gpu") is None


def test_machines_of_published_rounds_know_peak_bandwidth_network_and_storage() -> None:
    """What the analysis of systems needs: of at least 15 machines, and of most that have published results.

    Of storage it is the room on the devices of a node, or that it has none.
    """
    machines = known_machines()
    known = [
        each for each in machines
        if each.peak_16bit_tflop_s and each.accelerator_memory_gb_s and each.network_gb_s
        and each.local_disk_gb is not None
    ]  # fmt: skip
    assert len(known) >= 15
    published = [each for each in machines if each.published_as]
    assert (len(published), len([each for each in known if each.published_as])) == (17, 13)


@pytest.mark.parametrize(
    ("organization", "system", "machine"),
    [
        ("CSCS", "daint_gpu_n128_tf2.2.0", "piz-daint"),
        ("CSCS", "piz_daint_gpu_n1024_pt1.9.0", "piz-daint"),
        ("LBNL", "corigpu_n64_pt1.6.0", "cori-gpu"),
        ("LBNL", "coriknl_n512_tf1.15.2", "cori-knl"),
        ("LBNL", "perlmutter_512x4_ngc21.09_pytorch", "perlmutter-gpu"),
        ("HPE+LBNL", "perlmutter_12x128x4", "perlmutter-gpu"),
        ("RIKEN", "fugaku_512xA64FX_tensorflow_closed", "fugaku"),
        ("Fujitsu", "abci_2048xV100_tensorflow_open", "abci"),
        ("tacc", "longhorn-tf", "longhorn"),
        ("NVIDIA", "dgxa100_n512_pytorch", "selene"),
        ("NVIDIA", "eos_n256_ngc23.09_pytorch", "eos"),
        ("NVIDIA", "longhorn-tf", None),
        ("ours", "dgxa100_n512_pytorch", None),
        (None, None, None),
    ],
)
def test_an_entry_of_a_round_finds_its_machine(
    organization: str | None, system: str | None, machine: str | None
) -> None:
    found = published_machine(known_machines(), organization, system)
    assert (found.name if found is not None else None) == machine


def test_a_node_without_accelerators_counts_as_one() -> None:
    """Fugaku: 163 PB/s of all nodes, 2.15 EFLOP/s in half precision (R-CCS, About Fugaku)."""
    fugaku, selene = (find_machine(name, [MACHINES]) for name in ("fugaku", "selene"))
    assert (fugaku.devices, selene.devices, find_machine("dtu-gpua100", [MACHINES]).devices) == (1, 8, 2)
    assert fugaku.nodes is not None
    assert fugaku.accelerator_memory_gb_s is not None
    assert fugaku.peak_16bit_tflop_s is not None
    assert fugaku.nodes * fugaku.accelerator_memory_gb_s == pytest.approx(163e6, rel=0.003)
    assert fugaku.nodes * fugaku.peak_16bit_tflop_s == pytest.approx(2.15e6, rel=0.003)


def test_room_on_devices_is_zero_only_where_a_page_says_so() -> None:
    rooms = {each.name: each.local_disk_gb for each in known_machines()}
    names = ("lumi-g", "perlmutter-gpu", "piz-daint", "hal", "selene", "horeka")
    assert [rooms[name] for name in names] == [0, 0, 0, None, 30000, 980]


def test_a_place_within_another_counts(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(GOOD)
    machine = read_machine(path)
    found = {place: machine.storage_at(place) for place in ("$TMPDIR", "$TMPDIR/x", "$TMPDIR/fast/x", "/tmp")}
    assert {place: each and each.gb for place, each in found.items()} == {
        "$TMPDIR": 100, "$TMPDIR/x": 100, "$TMPDIR/fast/x": 10, "/tmp": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "memory_gib: 5\n", "'memory_gib' has no source; add it to the facts of one"),
        (GOOD.replace("[cores,", "[cores, charge,"), "a source has 'charge', which is no fact here"),
        (GOOD.replace("[cores,", "[cores, cores,"), "two sources have 'cores'"),
        (GOOD.replace("2026-11-23", "lately"), r"read \('lately'\) of https://example.org must be a date"),
        (GOOD.replace("https:", "ftp:"), "must be an address that begins with https://"),
        (GOOD.replace("gb: 100", "gb: -1"), r"storage\[0\].gb \(-1.0\) must be"),
        (GOOD + "published_as: [{organization: us, system: 'a*'}]\n", "'published_as' has no source"),
        (GOOD + "published_as: [{organization: us}]\n", r"published_as\[0\] lacks 'system'"),
        (
            GOOD.replace("[cores,", "[cores, peak_16bit_tflop_s,") + "peak_16bit_tflop_s: 0\n",
            r"peak_16bit_tflop_s \(0.0\) must be",
        ),
        (GOOD + "local_disk: 5\n", r"local_disk \(5\) must be true or false"),
        (GOOD.replace("gb: 100", "gb: 100, read_gb_s: -1"), r"storage\[0\].read_gb_s \(-1.0\) must be"),
        (GOOD.replace("path: $TMPDIR, ", ""), r"storage\[0\] lacks 'path'"),
        (GOOD.replace("gb: 100", "tb: 1"), r"storage\[0\].unknown key 'tb'"),
        (GOOD.replace("cores: 8", "cores: many"), r"cores \(many\) must be a whole number or null"),
        ("title: x\nstorage: 3\n", r"storage \(3\) must be a list of groups of keys"),
        ("cores: 3\n", "lacks 'title'"),
    ],
)
def test_a_bad_file_is_told_in_a_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "ours.yaml").write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_machine(tmp_path / "ours.yaml")
    assert "\n" not in str(caught.value)


def test_what_is_null_or_left_out_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("title: ours\ncores: null\n")
    assert not list(read_machine(tmp_path / "ours.yaml").facts())


PROFILE = "title: mine\nscheduler: slurm\nlauncher: srun\nmachine: ours\n"


def test_a_machine_of_ones_own_lies_beside_the_profiles(tmp_path: Path) -> None:
    environ = {"HPCBENCH_SITES": str(tmp_path)}
    (tmp_path / "mine.yaml").write_text(PROFILE)
    with pytest.raises(
        InputError, match=rf"unknown machine 'ours'; .* Your own would be {tmp_path}/machines/ours.yaml"
    ):
        read_site(tmp_path / "mine.yaml", environ)
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines" / "ours.yaml").write_text(GOOD)
    site = read_site(tmp_path / "mine.yaml", environ)
    assert (site.node.cores, site.node.gpus, site.machine and site.machine.name) == (8, 0, "ours")
    (tmp_path / "mine.yaml").write_text(PROFILE + "node: {cores: 3}\n")
    with pytest.raises(InputError, match="has machine and node; leave out node"):
        read_site(tmp_path / "mine.yaml", environ)


def test_the_files_of_the_page_can_be_read(tmp_path: Path) -> None:
    profile, machine = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "machines").mkdir()
    (tmp_path / "cluster.yaml").write_text(profile)
    (tmp_path / "machines" / "ours.yaml").write_text(machine)
    site = read_site(tmp_path / "cluster.yaml", {"HPCBENCH_SITES": str(tmp_path)})
    assert site.machine is not None
    assert site.machine.storage_at(site.local_path) == site.machine.storage[0]


def test_the_facts_are_shown_with_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is shown is a profile still, to copy and change."""
    assert main(["sites", "perlmutter-gpu"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^# its memory +40 GiB +\[1\]$", shown, re.MULTILINE)
    assert re.search(r"^# its memory with hbm80g +80 GiB +\[1\]$", shown, re.MULTILINE)
    assert re.search(r"^# storage /dev/shm +128 GB, memory of the node +\[3\]$", shown, re.MULTILINE)
    assert re.search(r"^# link between two of them +unknown$", shown, re.MULTILINE)
    assert re.search(r"^# network of a node +100 GB/s +\[5\]$", shown, re.MULTILINE)
    assert "# [3] https://docs.nersc.gov/performance/io/dev-shm/, read 2026-11-23\n" in shown
    (tmp_path / "copy.yaml").write_text(shown)
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path))
    assert read_site(tmp_path / "copy.yaml").node.gpus == 4


def test_a_storage_whose_path_no_page_tells_is_known_and_matches_no_folder(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "title: ours\nstorage: [{path: null, gb: 930, in_memory: false}]\n"
        "sources: [{url: 'https://example.org', read: 2026-11-23, facts: [storage]}]\n"
    )
    machine = read_machine(tmp_path / "ours.yaml")
    assert [machine.storage_at(path) for path in ("/tmp", "relative", "")] == [None, None, None]
    assert machine.local_disk_gb == 930


def test_machines_are_listed_and_shown_without_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites", "--machines"]) == 0
    listed = capsys.readouterr().out
    assert max(len(line) for line in listed.splitlines()) <= 100
    assert re.search(
        r"^fugaku +158976 +Fujitsu A64FX, 48 cores +13\.5168 +1024 +68 +93\.4 GB +yes$", listed, re.MULTILINE
    )
    assert re.search(r"^cori-knl .* none +yes$", listed, re.MULTILINE)
    assert re.search(r"^lumi-g .* none$", listed, re.MULTILINE), "its /tmp is memory, of no known size"
    assert re.search(r"^perlmutter-gpu .* 128 GB, memory +yes$", listed, re.MULTILINE)
    for name in [each.name for each in known_machines()]:
        assert main(["sites", name]) == 0
        shown = capsys.readouterr().out
        wide = [line for line in shown.splitlines() if line.startswith("#") and len(line) > 100]
        assert all(re.fullmatch(r"# https?://\S+", line) for line in wide), "only an address may be wider"
    assert main(["sites", "fugaku"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^# accelerators of a node +0 +\[2\]$", shown, re.MULTILINE)
    assert "Fujitsu+RIKEN/fugaku_*" in shown


def test_machines_with_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites", "fugaku", "--machines"]) == 2
    assert "give --machines or a name (fugaku), not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fugak", "unknown site or machine 'fugak'; did you mean 'fugaku'?"),
        ("perlmutter", "did you mean 'perlmutter-gpu', which is Perlmutter, GPU nodes (NERSC)?"),
        ("qqqqq", "is like it; 'hpcbench sites' and its --machines list them"),
    ],
)
def test_an_unknown_name_is_told_what_is_near_among_sites_and_machines(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sites", name]) == 2
    assert words in capsys.readouterr().err
