"""Messages of a step as they are counted, and as two ranks send them; and the links that they cross."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.characterisation.characterize import with_exposed
from hpcbench.characterisation.counts import count_step
from hpcbench.characterisation.message_counts import Links, shared_messages
from hpcbench.characterisation.model import Message
from hpcbench.config.resolve import resolve
from hpcbench.parallel import sharded
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.planning.counting import Traffic
from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).parent / "programs" / "sent_messages.py"
MANY_UNITS, ONE_UNIT = 1000, 10**6
NODE = Links("within a node")
PLAIN = {"train.precision": "32-true", "parallel.accelerator": "cpu"}
SHARDED = {**PLAIN, "parallel.shard_states": True}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "buckets": (ONE_UNIT, {**PLAIN, "parallel.bucket_bytes": 65536}),
    "buckets in the other order, as bfloat16": (ONE_UNIT, {
        **PLAIN, "parallel.bucket_bytes": 65536, "parallel.reduce_dtype": "bfloat16",
        "parallel.bucket_order": "forward"}),
    "AdamW": (ONE_UNIT, SHARDED),
    "LAMB in units, three passes": (MANY_UNITS, {**SHARDED, "optim.name": "lamb", "train.accumulation": 3}),
    "LAMB with clipping": (ONE_UNIT, {**SHARDED, "optim.name": "nvlamb", "optim.weight_decay": 0.01}),
    "LARS without biases": (MANY_UNITS, {**SHARDED, "optim.name": "lars", "optim.adapt_exclude": ["biases"]}),
}  # fmt: skip


def counted(settings: dict[str, Any], ranks: int = 2, links: Links = NODE) -> tuple[Message, ...]:
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides=settings)
    return count_step(application, config, mesh_shape(ranks, config.parallel.spatial), links).messages


@pytest.mark.slow
def test_messages_are_those_that_two_ranks_send(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        spawned(2, PROGRAM, json.dumps(list(CASES.values()))), env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, timeout=300, check=True,
    )  # fmt: skip
    every = dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))
    for name, (at_least, settings) in CASES.items():
        monkeypatch.setattr(sharded, "UNIT", at_least)
        found: dict[str, list[int]] = {}
        for message in counted(settings):
            sums = found.setdefault(message.operation, [0, 0])
            sums[0] += message.count
            sums[1] += message.bytes
        assert found == every[name], name
    plain, rounded = every["buckets"], every["buckets in the other order, as bfloat16"]
    assert plain["all_reduce"][1] == 2 * rounded["all_reduce"][1]
    assert plain["all_reduce"][0] > 1
    assert "all_reduce" not in every["AdamW"]
    assert every["LAMB with clipping"]["all_reduce"][0] > every["LAMB in units, three passes"]["all_reduce"][0] > 0


def test_neighbours_on_a_node_send_within_it() -> None:
    two_nodes = Links("between nodes", ranks_per_node=4)
    assert [two_nodes.among(ranks) for ranks in (1, 2, 4, 8)] == ["within a node"] * 3 + ["between nodes"]
    assert [Links("between nodes", 6).among(ranks) for ranks in (3, 4)] == ["within a node", "between nodes"]
    assert Links("between nodes").among(2) == "between nodes"
    assert Links("within a node").among(2) == "within a node"
    assert Links().among(1) == "none"


@pytest.mark.parametrize(("spatial", "link"), [("2", "within a node"), ("8", "between nodes")])
def test_halos_and_gradients_cross_their_own_links(spatial: str, link: str) -> None:
    found = counted({**PLAIN, "parallel.spatial": spatial}, 8, Links("between nodes", 4))
    assert {message.kind: message.link for message in found} == {"gradients": "between nodes", "halo": link}


def test_batch_norm_groups_have_links_of_their_own() -> None:
    traffic = Traffic(sums=640, summed=5)
    for size, link in ((2, "within a node"), (8, "between nodes")):
        config = resolve(find_application("cosmoflow"), "smoke", overrides={"train.batchnorm_group_size": size})
        found = shared_messages(traffic, 3, mesh_shape(8, "1"), config, Links("between nodes", 4))
        assert found == [Message("batch_norm", "all_reduce", link, 15, 1920)]  # type: ignore[arg-type]


def test_messages_of_a_kind_share_the_time_that_steps_wait_for_them() -> None:
    gather = Message("sharding", "all_gather", "within a node", 4, 3_000)
    sums = Message("sharding", "all_reduce", "within a node", 2, 1_000)
    halo = Message("halo", "exchange", "within a node", 2, 500)
    measured: Any = SimpleNamespace(exposed_s={"sharding": 0.4})
    found = with_exposed((gather, sums, halo), measured)
    assert [message.exposed_s for message in found] == [pytest.approx(0.3), pytest.approx(0.1), None]
    assert with_exposed((replace(gather, link="none"),), measured)[0].exposed_s is None
