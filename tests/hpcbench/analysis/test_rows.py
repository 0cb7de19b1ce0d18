"""Staging, convergence, variation, compute and memory tiers of made-up entries, by hand and by other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import linregress

from hpcbench.analysis.compute_rows import compute_rows
from hpcbench.analysis.convergence_rows import alike, convergence_row, points, recipe_words
from hpcbench.analysis.machine_names import accelerator_kind, machine_of, short_names, unique_labels
from hpcbench.analysis.published_sets import SETS
from hpcbench.analysis.ranking import rank
from hpcbench.analysis.staging_rows import staging_row
from hpcbench.analysis.tier_rows import tier_row
from hpcbench.analysis.variation_rows import explained, variation_row
from hpcbench.batch.machine import Machine, PublishedName, Source, Storage
from tests.hpcbench.analysis.made_runs import entry, run

PROBLEM = SETS[2]


def machine(**facts: Any) -> Machine:
    """A machine of 4 accelerators of 40 GiB, 512 GiB of memory and 1.6 TB of storage a node."""
    known: dict[str, Any] = {
        "memory_gib": 512, "accelerators": 4, "accelerator_memory_gib": 40.0, "peak_16bit_tflop_s": 312.0,
        "storage": (Storage("/local", 1600.0, False, False),), "published_as": (PublishedName("ORG", "box*"),),
    }  # fmt: skip
    known = {name: value for name, value in (known | facts).items() if value is not None}
    names = tuple(name for name in known if name != "storage")
    if known.get("storage"):
        names += tuple(f"storage.{each.path}" for each in known["storage"])
    return Machine("box", "Box, GPU nodes (ORG)", **known, sources=(Source("https://a.b/", "2026-01-01", names),))


def test_staging_of_an_entry() -> None:
    """8.69 TB in 10 s to two nodes are 434.5 GB/s for each."""
    row = staging_row(entry(run(train_samples=121_266)))
    assert (row.staging_s, row.share, row.before_s) == (10, pytest.approx(0.1), None)
    assert row.set_gb == pytest.approx(8690.3, abs=0.1)
    assert row.node_gb_s == pytest.approx(434.5, abs=0.1)
    assert (row.first_epoch, row.hidden_s) == (pytest.approx(20 / 15), pytest.approx(5))


def test_staging_that_is_not_logged_is_absent() -> None:
    row = staging_row(entry(run(staging_s=None, epochs_s=[20.0, 15.0], epochs=2.0)))
    assert (row.staging_s, row.share, row.node_gb_s, row.set_gb, row.first_epoch) == (None, None, None, None, None)


def test_staging_before_the_clock_has_a_rate_and_no_share() -> None:
    row = staging_row(entry(run(staging_s=None, staging_before_s=20.0, train_samples=121_266)))
    assert (row.before_s, row.share) == (20, None)
    assert row.node_gb_s == pytest.approx(217.3, abs=0.1)


def test_epochs_stand_beside_the_reference_of_the_round() -> None:
    """DeepCAM's point at 2,048: 22.625 epochs; of v1.0 at 128: 9."""
    row = convergence_row(entry(*(run(number, global_batch_size=2048, epochs=23.0 + number) for number in range(3))))
    assert row is not None
    assert (row.epochs, row.least, row.most, row.trajectories) == (24, 23, 25, 3)
    assert row.reference == 22.625
    assert row.over_reference == pytest.approx(24 / 22.625)
    old, new = (convergence_row(entry(run(global_batch_size=128, round=each))) for each in ("v1.0", "v2.0"))
    assert old is not None
    assert new is not None
    assert (old.reference, new.reference) == (9, pytest.approx(6.944, abs=1e-3))
    assert convergence_row(entry(run(round="v0.7", global_batch_size=128))).reference is None  # type: ignore[union-attr]


def test_recipes_that_differ_are_told() -> None:
    recipe = {"opt_name": "lamb", "opt_lr": 0.01, "opt_weight_decay": 0.01, "scheduler_type": "cosine_annealing"}
    row = convergence_row(entry(run(global_batch_size=2048, recipe=recipe)))
    assert row is not None
    assert row.differs == "rate, scheduler"
    assert recipe_words(recipe) == "lamb, rate 0.01, decay 0.01, cosine_annealing"
    same = convergence_row(entry(run(global_batch_size=2048, recipe={"opt_lr": 0.0055, "opt_weight_decay": 0.01})))
    assert same is not None
    assert same.differs == "nothing"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.1", 0.1, True), ([0.25, 0.25], 0.25, True), ("[16, 32]", [16, 32], True), ("LAMB", "lamb", True),
        ([16, 32], [16, 64], False), (0.004, 0.0040000001, True), (True, 1, True), ("800", [800], True),
    ],
)  # fmt: skip
def test_settings_that_are_alike(one: object, other: object, same: bool) -> None:
    assert alike(one, other) == same


def test_the_checker_says_which_points_it_keeps() -> None:
    found = points("cosmoflow", "3.0.0")
    assert {batch: row.kept for batch, row in found.items()} == {
        32: "yes", 64: "no", 128: "no", 512: "yes", 1024: "yes"
    }  # fmt: skip
    assert points("openfold", "3.0.0") == {}


def test_variation_is_that_of_a_linear_regression() -> None:
    times, epochs = (100.0, 117.0, 131.0, 150.0, 168.0), (4.0, 5.0, 5.0, 6.0, 7.0)
    row = variation_row(
        entry(*(run(n, seconds, epochs=count) for n, (seconds, count) in enumerate(zip(times, epochs, strict=True))))
    )
    assert row is not None
    assert row.time_sd == pytest.approx(np.std(np.log(times), ddof=1))
    assert row.epochs_sd == pytest.approx(np.std(np.log(epochs), ddof=1))
    assert row.epoch_s_sd == pytest.approx(np.std(np.log(86 / np.array(epochs)), ddof=1))
    assert row.explained == pytest.approx(1 - (1 - linregress(np.log(epochs), np.log(times)).rvalue ** 2) * 4 / 3)
    assert row.score_sd == pytest.approx(row.time_sd * 0.4765, rel=1e-3), "of an olympic mean, 7 % above 1 / sqrt(5)"


def test_chance_alone_explains_nothing_in_few_runs() -> None:
    """The square of the correlation of independent values is 1 / (n - 1) in the mean; adjusted, its median is 0."""
    random = np.random.default_rng(3)
    shares = [explained(random.standard_normal(5).tolist(), random.standard_normal(5).tolist()) for _ in range(500)]
    assert np.median([share for share in shares if share is not None]) == 0


def test_epochs_that_do_not_vary_explain_nothing() -> None:
    row = variation_row(entry(*(run(number, 100.0 + number) for number in range(4))))
    assert row is not None
    assert (row.epochs_sd, row.explained) == (0, None)
    assert variation_row(entry(run(0), run(1))) is None


def test_compute_of_entries_that_differ_in_scale() -> None:
    small = entry(run(train_samples=121_266))
    large = entry(run(train_samples=121_266, system="box2", accelerators=16, nodes=4, epochs_s=[10.0] * 4))
    rows = compute_rows([large, small], machine_of([machine()]))
    assert [row.efficiency for row in rows] == [pytest.approx(60 / 40 * 8 / 16), None]
    assert [row.scale_base for row in rows] == [small.name, None]
    assert rows[1].rate == pytest.approx(121_266 * 4 / 60 / 8)
    assert rows[1].of_peak == pytest.approx(121_266 * 4 / 60 / 8 * 1.963974567936 / 312)
    assert rows[1].local_batch == 2
    (unknown,) = compute_rows([small], machine_of([]))
    assert (unknown.machine, unknown.of_peak, unknown.accelerator) == (None, None, "NVIDIA A100-SXM4-40GB")


def test_tiers_of_a_machine() -> None:
    """8,690 GB over 172, 550 and 1,600 GB a node; a batch of 2,048 occupies 512 nodes of 4."""
    row = tier_row(PROBLEM, machine(), [entry(run(train_samples=121_266))], machine_of([machine()]))
    assert (row.accelerator_nodes, row.memory_nodes, row.storage_nodes, row.batch_nodes) == (51, 16, 6, 512)
    assert row.decides == "6 to 15 nodes"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"local_disk": False, "storage": ()}, "none there: 1 to 15 nodes read from the shared file system"),
        ({"storage": ()}, "storage unknown"),
        ({"storage": (Storage("/local", 500.0, False, False),)}, "no: memory holds the set as early"),
        ({"memory_gib": 10_000}, "no: memory holds the set as early"),
        ({"memory_gib": 10_000, "local_disk": False, "storage": ()}, "none there, none needed"),
        ({"memory_gib": 4}, "6 to 50 nodes"),
    ],
)
def test_where_node_storage_decides(facts: dict[str, Any], words: str) -> None:
    assert tier_row(PROBLEM, machine(**facts), [], machine_of([])).decides == words


def test_reads_that_a_shared_file_system_carries() -> None:
    """Four accelerators of a node at the entry's rate, 60.75 MiB a sample."""
    here = machine(filesystem_read_gb_s=5000.0)
    made = entry(run(train_samples=121_266))
    row = tier_row(PROBLEM, here, [made], machine_of([here]))
    demand = (made.samples_per_s_per_accelerator or 0) * 4 * 60.75 * 2**20 / 1e9
    assert row.demand_gb_s == pytest.approx(demand)
    assert row.filesystem_nodes == int(5000 / demand)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB (400W)", "A100"), ("NVIDIA Tesla V100", "V100"), ("Fujitsu A64FX", "A64FX"),
        ("NVIDIA P100-PCIE-16GB", "P100"), ("Intel Xeon Phi 7250", "Xeon Phi"), ("AMD MI250X", "MI250X"),
        ("NVIDIA H100-SXM5-80GB", "H100"), ("N/A", "unknown"), (None, "unknown"), ("Other", "Other"),
        ("NVIDIA Quadro RTX 5000", "Quadro RTX"), ("NVIDIA GH200", "GH200"),
    ],
)  # fmt: skip
def test_kinds_of_accelerators(told: str | None, kind: str) -> None:
    assert accelerator_kind(told) == kind


def test_short_names_differ() -> None:
    assert short_names(["Cori, GPU nodes (NERSC)", "Cori, KNL nodes (NERSC)", "Eos (NVIDIA)"]) == [
        "Cori, GPU nodes", "Cori, KNL nodes", "Eos"
    ]  # fmt: skip


def test_labels_differ_and_hold_no_mathematics() -> None:
    """Of one machine, size and round: by batch, then by system."""
    made = [entry(run(system="box_$a")), entry(run(system="box_b")), entry(run(system="box_c", global_batch_size=32))]
    labels = unique_labels(made, machine_of([]))
    assert list(labels.values()) == [
        "ORG box, 8 A100, v1.0, batch 16 (box_a)", "ORG box, 8 A100, v1.0, batch 16 (box_b)",
        "ORG box, 8 A100, v1.0, batch 32",
    ]  # fmt: skip
    assert list(unique_labels(made[:1], machine_of([machine()])).values()) == ["Box, 8 A100, v1.0"]


def test_a_run_on_a_small_set_is_no_base_of_entries_on_the_whole() -> None:
    """It is the fastest, and the others are compared with the fastest of their own."""
    small = entry(run(seconds=1.0, system="small", train_samples=128))
    whole = [entry(run(seconds=seconds, system=f"s{seconds:g}")) for seconds in (300.0, 200.0)]
    found = rank("deepcam", "time to train", [*whole, small])
    assert found is not None
    assert found.entries[0] is small
    assert found.base is whole[1]
    named = rank("deepcam", "time to train", [*whole, small], small)
    assert named is not None
    assert named.base is small
    unknown = [entry(run(seconds=seconds, system=f"s{seconds:g}", train_samples=None)) for seconds in (300.0, 200.0)]
    found = rank("deepcam", "time to train", unknown)
    assert found is not None
    assert found.base is unknown[1]


def test_an_application_of_any_name_makes_names_of_files() -> None:
    found = rank("../../x $y$", "time to train", [entry(run()), entry(run(system="b"))])
    assert found is not None
    assert found.slug == "x-y-time-to-train"
