"""What will run on a machine and what cannot, before a job starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcbench.batch.site import PROFILES, Site, read_site
from hpcbench.campaign import sizes
from hpcbench.campaign.entry import Entry, run_config
from hpcbench.campaign.sizes import SizePlan, plan_sizes
from hpcbench.config.schema import RunConfig
from staging.errors import InputError
from tests.hpcbench.campaign.made_up import entry_of, shipped

GIB = 2**30


@pytest.fixture
def perlmutter() -> Site:
    """Four accelerators of 40 GiB a node."""
    return read_site(PROFILES / "perlmutter-gpu.yaml", {"HPCBENCH_SITES": "/nowhere"})


@pytest.fixture
def four_gib_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of a rank: 1 GiB, and 4 GiB a sample."""

    def counted(application: object, config: RunConfig, nodes: int, ranks: int) -> int:
        return GIB * (1 + 4 * config.train.local_batch_size)

    monkeypatch.setattr(sizes, "rank_memory", counted)


def plans(entry: Entry, site: Site) -> list[SizePlan]:
    """The sizes of an entry."""
    return plan_sizes(entry, run_config(entry), site)


@pytest.mark.usefixtures("four_gib_a_sample")
def test_64_gpus_cannot_hold_nerscs_batch(perlmutter: Site) -> None:
    entry = entry_of(shipped("nersc10-deepcam"), "deepcam", "baseline", nodes=(16, 100, 128, 1024))
    few, odd, enough, many = plans(entry, perlmutter)
    assert few.problem == (
        "64 GPUs cannot hold a global batch of 2,048 without accumulation: local batch 32 needed, which takes 129 GiB "
        "of a rank, more than the 40.0 GiB of an accelerator; 256 GPUs hold it with local batch 8"
    )
    assert odd.problem == "400 GPUs cannot share a global batch of 2,048 evenly; 256 or 512 can"
    assert (enough.problem, enough.local_batch, enough.memory) == ("", 4, "17.0 GiB of 40.0 GiB")
    assert "4,096 GPUs are more than the samples of a global batch of 2,048" in many.problem


@pytest.mark.usefixtures("four_gib_a_sample")
def test_a_local_batch_that_is_fixed_and_does_not_fit(perlmutter: Site) -> None:
    (plan,) = plans(entry_of(shipped("esif-hpc-4"), "s1", "baseline", nodes=(1,)), perlmutter)
    assert plan.problem == "local batch 12 takes 49.0 GiB of a rank, more than the 40.0 GiB of an accelerator"
    assert (plan.global_batch, plan.runs) == (48, 3)
    unknown = replace(perlmutter, machine=None)
    (plan,) = plans(entry_of(shipped("esif-hpc-4"), "s1", "baseline", nodes=(1,)), unknown)
    assert (plan.problem, plan.memory) == ("", "49.0 GiB of unknown"), "nothing is guessed"


@pytest.mark.usefixtures("four_gib_a_sample")
def test_accumulation_makes_it_fit_where_the_rules_allow_it(perlmutter: Site) -> None:
    campaign = shipped("mlperf-hpc-3.0")
    chosen = {"global_batch": 2048, "nodes": (16,), "preset": "mlperf-2048"}
    (plan,) = plans(entry_of(campaign, "deepcam", "closed", **chosen), perlmutter)
    assert plan.problem.startswith("64 GPUs cannot hold a global batch of 2,048: local batch 32 needed")
    settings = {"train.accumulation": "16"}
    (plan,) = plans(entry_of(campaign, "deepcam", "closed", settings=settings, **chosen), perlmutter)
    assert (plan.problem, plan.local_batch, plan.accumulation) == ("", 2, 16)


@pytest.mark.parametrize(("nodes", "more"), [(64, "at most 128 can share it"), (12, "32 or 64 can")])
def test_a_batch_that_the_rules_leave_open_may_be_another(perlmutter: Site, nodes: int, more: str) -> None:
    (plan,) = plans(entry_of(shipped("mlperf-hpc-3.0"), "deepcam", "closed", nodes=(nodes,)), perlmutter)
    assert plan.problem.endswith(f"{more}; give another batch with --global-batch-size, and its recipe with --preset")


@pytest.mark.usefixtures("four_gib_a_sample")
def test_instances(perlmutter: Site) -> None:
    entry = entry_of(shipped("mlperf-hpc-3.0"), "deepcam-throughput", "open", nodes=(20, 80, 85), instance_nodes=16)
    few, enough, odd = plans(entry, perlmutter)
    assert few.problem == "20 nodes are no multiple of the 16 of an instance"
    assert (enough.problem, enough.instances, enough.runs, enough.local_batch) == ("", 5, 5, 2)
    assert odd.problem == "85 nodes are no multiple of the 16 of an instance"
    (few,) = plans(replace(entry, nodes=(32,)), perlmutter)
    assert few.problem == "32 nodes hold 2 instances of 16 nodes; 5 or more are needed: 80 nodes"
    with pytest.raises(InputError, match="scenario deepcam-throughput needs --instance-nodes"):
        plans(replace(entry, instance_nodes=None), perlmutter)


def test_sizes_must_be_named(perlmutter: Site) -> None:
    with pytest.raises(InputError, match="scenario deepcam needs --nodes, its sizes in nodes"):
        plans(entry_of(shipped("nersc10-deepcam"), "deepcam", "baseline"), perlmutter)


@pytest.mark.slow
def test_the_memory_is_counted(perlmutter: Site) -> None:
    """Local batch 2 trains on the 40 GB of an A100 (the reference's own run); 32 takes over three times of these."""
    few, enough = plans(entry_of(shipped("nersc10-deepcam"), "deepcam", "baseline", nodes=(16, 256)), perlmutter)
    assert few.need is not None
    assert few.need > 3 * 40 * GIB
    assert "local batch 32 needed" in few.problem
    assert (enough.problem, enough.local_batch) == ("", 2)
