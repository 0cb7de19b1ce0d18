"""What a node sends to others is measured while all its ranks send, and used as that by machine file and prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.machine import read_machine
from hpcbench.characterisation.machine_file import write_machine
from hpcbench.characterisation.message_curves import lane_neighbours
from hpcbench.characterisation.model import Characterisation, Curve, Message, StepTimes
from hpcbench.characterisation.roofline import message_bound_s
from hpcbench.prediction.message_time import MessageTime
from hpcbench.prediction.platforms import platform_of, shipped_machines
from hpcbench.prediction.step_time import case_of
from hpcbench.prediction.workload import work_of
from tests.hpcbench.characterisation.made import made
from tests.hpcbench.parallel.spawned import spawned
from tests.hpcbench.parallel.test_ranks import run_program

BLOCKS = [(node, number) for node in range(3) for number in range(4)]
CYCLIC = [(node, number) for number in range(4) for node in range(3)]


@pytest.mark.parametrize("places", [BLOCKS, CYCLIC])
def test_all_ranks_of_a_node_send_to_the_same_number_on_the_next(places: list[tuple[int, int]]) -> None:
    for rank, (node, number) in enumerate(places):
        lane = lane_neighbours(places, rank)
        assert lane is not None
        assert [places[other] for other in lane] == [((node + 1) % 3, number), ((node - 1) % 3, number)]


def test_there_are_no_lanes_where_a_ring_is_one_or_nodes_differ() -> None:
    for places in ([(0, 0), (0, 1)], [(0, 0), (1, 0)], [(0, 0), (0, 1), (1, 0)], [(0, 0)]):
        assert lane_neighbours(places, 0) is None


@pytest.mark.slow
def test_two_nodes_of_two_ranks_measure_both_exchanges() -> None:
    curves, met = run_program(*spawned(4, Path(__file__).parent / "programs" / "two_nodes.py"))
    assert curves == [  # type: ignore[comparison-overlap]
        ["all_reduce", 2, 1, "within a node"], ["exchange", 2, 1, "within a node"],
        ["all_reduce", 4, 2, "between nodes"], ["exchange", 4, 2, "between nodes"],
        ["lane_exchange", 4, 2, "between nodes"],
    ]  # fmt: skip
    # who sent to whom, and got from whom: around the ring, and along the lanes
    ring, lanes = [(0, 1, 3), (1, 2, 0), (2, 3, 1), (3, 0, 2)], [(0, 2, 2), (1, 3, 3), (2, 0, 0), (3, 1, 1)]
    assert sorted(map(tuple, met)) == sorted(ring + lanes)  # type: ignore[arg-type]


def sixteen(operation: str, bytes_per_s: float) -> Curve:
    return Curve(operation, 16, 2, "between nodes", (), 1e-4, bytes_per_s)  # type: ignore[arg-type]


def two_nodes(*curves: Curve) -> Characterisation:
    """Two nodes of eight ranks: one of them sends 5 GB/s to another node alone, and 2 GB/s while all do."""
    messages = (Message("gradients", "all_reduce", "between nodes", 4, 8_000_000, 0.021),
                Message("halo", "exchange", "between nodes", 6, 2_000_000, None, fixed=False))  # fmt: skip
    steps = (StepTimes(16, 2, 4, 3, 0.4, 0.4, 0.4, (0.4,) * 16, (1.0,) * 16),)
    base = made(curves=(sixteen("all_reduce", 3e9), sixteen("exchange", 5e9), *curves), messages=messages, steps=steps)
    return replace(base, host=replace(base.host, device="cuda", nodes=2, ranks=16))


@pytest.mark.parametrize(
    ("characterisation", "network_gb_s"),
    [
        (two_nodes(sixteen("lane_exchange", 2e9)), 16.0),
        # as files were before all ranks of a node sent at once: one message left each node
        (two_nodes(), 5.0),
        (replace(two_nodes(), curves=two_nodes().curves[:1]), 3.0),
    ],
)
def test_messages_take_on_their_own_machine_what_they_took(
    characterisation: Characterisation, network_gb_s: float, tmp_path: Path
) -> None:
    write_machine(characterisation, tmp_path / "mine.yaml")
    machine = read_machine(tmp_path / "mine.yaml")
    assert (machine.network_gb_s, machine.accelerators) == (network_gb_s, 8)
    messages = MessageTime.of(characterisation)
    assert messages is not None
    platform = platform_of(machine, shipped_machines(), calibrated=True)
    case = case_of(work_of("cosmoflow"), platform, 2, 8, characterisation.local_batch, newer=True)
    measured = 4 * 1e-4 + 8e6 / 3e9
    if len(characterisation.curves) > 1:
        measured += 6 * 1e-4 + 2e6 / 5e9
    assert float(messages.seconds(case)) == pytest.approx(measured, rel=1e-3)
    # half of the network, half of the rate
    half = replace(case, network_bytes_per_s=case.network_bytes_per_s / 2)
    assert float(messages.seconds(half) - messages.seconds(case)) == pytest.approx(
        8e6 / 3e9 + (2e6 / 5e9 if len(characterisation.curves) > 1 else 0), rel=1e-3
    )


def test_the_bound_of_a_message_knows_both_exchanges() -> None:
    found = two_nodes(sixteen("lane_exchange", 7e9))
    assert message_bound_s(found.messages[1], found) == pytest.approx(1e-4 + 2e6 / 6 / 7e9)
