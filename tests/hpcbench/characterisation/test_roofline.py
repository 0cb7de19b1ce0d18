"""Bounds of a step and of kernels, from round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcbench.characterisation.model import Curve, CurvePoint, Message, Roof
from hpcbench.characterisation.roofline import (
    bound_of,
    bounds,
    limited_by,
    lost_s,
    message_bound_s,
    message_lost_s,
    ranked,
)
from hpcbench.characterisation.tables import touches
from tests.hpcbench.characterisation.made import CONVOLUTION, RELU, UPDATE, made

LINK = Curve("exchange", 2, 1, "within a node", (CurvePoint(1000, 5.5e-6),), 5e-6, 2e9)


def test_each_part_of_a_step() -> None:
    found = {bound.part: bound for bound in bounds(made())}
    # 6 GFLOP at 20 GFLOP/s; 33 MB at 1 GB/s; 4 samples of 2.5 MB at 100 MB/s; 4 MB at 1 GB/s and twice 10 us.
    assert found["compute"].bound_s == pytest.approx(0.3)
    assert found["memory"].bound_s == pytest.approx(0.033)
    assert found["input"].bound_s == pytest.approx(0.1)
    assert found["network"].bound_s == pytest.approx(0.00402)
    # The step takes 1.25 s.
    assert found["compute"].attained == pytest.approx(4.8e9)
    assert found["compute"].utilisation == pytest.approx(0.24)


def test_a_gather_is_half_a_sum() -> None:
    sums, gather = (Message("sharding", name, "within a node", 2, 4_000_000) for name in ("all_reduce", "all_gather"))  # type: ignore[arg-type]
    found = [(bound.roof, bound.bound_s) for bound in bounds(made(messages=(sums, gather))) if bound.part == "network"]
    assert found == [("sharding all-reduce, within a node", pytest.approx(0.00402)),
                     ("sharding all-gather, within a node", pytest.approx(0.00202))]  # fmt: skip


def test_messages_of_a_step_and_of_kernels_have_one_roof() -> None:
    """The exchange shows twice the rate of the sum and half its latency: the link can do both."""
    message = Message("gradients", "all_reduce", "within a node", 2, 4_000_000)
    found = made(messages=(message,), curves=(*made().curves, LINK))
    (network,) = (bound for bound in bounds(found) if bound.part == "network")
    assert network.rate == pytest.approx(2e9)
    assert network.bound_s == pytest.approx(0.00201)
    one = message_bound_s(message, found)
    assert one is not None
    assert network.bound_s == pytest.approx(2 * one)


def test_without_steps_nothing_is_attained() -> None:
    assert {bound.attained for bound in bounds(made(steps=()))} == {None}
    assert bounds(made(roofs=(), curves=())) == []


def test_kernels_are_held_against_the_higher_of_their_times() -> None:
    found = made()
    assert bound_of(CONVOLUTION, found) == pytest.approx(0.15)  # 3 GFLOP, where 10 MB take 0.01 s
    assert bound_of(RELU, found) == pytest.approx(0.008)
    tiny = replace(RELU, read_bytes=8.0, written_bytes=8.0)
    assert bound_of(tiny, found) == 1e-5
    assert [limited_by(each, found) for each in (CONVOLUTION, RELU, tiny)] == ["compute", "memory", "launch"]
    assert bound_of(RELU, made(roofs=())) is None


@pytest.mark.parametrize(
    ("allowed", "of_convolution", "of_product"),
    [(None, 0.05, 0.15), (True, 0.05, 0.05), (False, 0.15, 0.15)],
)
def test_float32_is_held_against_tf32_where_a_gpu_uses_it(
    allowed: bool | None, of_convolution: float, of_product: float
) -> None:
    """3 GFLOP at 20 GFLOP/s in float32, and at 60 in TF32, which torch's default allows for convolutions alone."""
    tensor_float = Roof("compute", "tf32", 6e10, "FLOP/s", "")
    found = made(roofs=(*made().roofs, tensor_float), configuration={"train": {"tf32": allowed}})
    product = replace(CONVOLUTION, operation="mm", kind="matrix product")
    assert bound_of(CONVOLUTION, found) == pytest.approx(of_convolution)
    assert bound_of(product, found) == pytest.approx(of_product)
    compute = bounds(found)[0]
    assert (compute.roof, compute.bound_s) == (
        "float32" if allowed is False else "tf32",
        pytest.approx(2 * of_convolution),
    )
    # Numbers of 16 bits are not rounded to TF32.
    half = Roof("compute", "bfloat16", 3e11, "FLOP/s", "")
    mixed = replace(found, roofs=(*found.roofs, half))
    assert bound_of(replace(CONVOLUTION, precision="bfloat16"), mixed) == pytest.approx(0.01)


@pytest.mark.parametrize(("rate", "roof", "seconds"), [(1e10, "float32", 0.15), (3e11, "bfloat16", 0.01)])
def test_a_16_bit_type_slower_than_float32_is_held_against_float32(rate: float, roof: str, seconds: float) -> None:
    """3 GFLOP at 20 GFLOP/s in float32: a processor without such instructions converts, which is faster than 10."""
    half = Roof("compute", "bfloat16", rate, "FLOP/s", "")
    found = made(roofs=(*made().roofs, half), precision="bf16-mixed")
    assert bound_of(replace(CONVOLUTION, precision="bfloat16"), found) == pytest.approx(seconds)
    assert bounds(found)[0].roof == roof


def test_kernels_by_the_time_that_they_lose() -> None:
    found = made()
    assert lost_s(CONVOLUTION, found) == pytest.approx(2 * (0.5 - 0.15))
    assert lost_s(RELU, found) == pytest.approx(0.004)
    assert lost_s(replace(RELU, alone_s=0.001), found) == 0.0  # in a cache
    assert lost_s(replace(RELU, alone_s=None), found) is None
    assert [each.operation for each in ranked(found)] == ["convolution", "sgd", "relu_"]
    sums, halos = found.messages[0], Message("halo", "exchange", "within a node", 4, 400_000, alone_s=1e-4)
    slow = replace(found, messages=(replace(sums, alone_s=0.01), halos), curves=(*found.curves, LINK))
    # Twice 10 ms, less 2 MB once around two ranks at 2 GB/s and 5 us each; four times 100 us, less 50 us and 5 us each.
    assert message_lost_s(slow.messages[0], slow) == pytest.approx(2 * (0.01 - 0.001005))
    assert message_lost_s(halos, slow) == pytest.approx(4 * (100e-6 - 55e-6))
    assert message_lost_s(replace(halos, alone_s=1e-6), slow) == 0.0
    assert [each.operation for each in ranked(slow)] == ["convolution", "all_reduce", "sgd", "relu_", "exchange"]
    # Without the exchange, what the sum shows of the link: 1 GB/s, 10 us.
    assert message_bound_s(sums, found) == pytest.approx(0.00201)
    assert message_bound_s(sums, made(curves=())) is None
    assert message_lost_s(sums, slow) is None


@pytest.mark.parametrize(
    ("operation", "ranks", "passes"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75),
     ("exchange", 8, 1.0)],
)  # fmt: skip
def test_bytes_of_a_message_go_around_a_ring(operation: str, ranks: int, passes: float) -> None:
    message = Message("sharding", operation, "within a node", 3, 6_000_000)  # type: ignore[arg-type]
    slower = replace(LINK, link="between nodes", ranks=99, bytes_per_s=1.0)
    found = made(curves=(replace(LINK, ranks=ranks), slower))
    assert message_bound_s(message, found) == pytest.approx(5e-6 + passes * 2e6 / 2e9)


def test_how_often_activations_are_touched() -> None:
    # Two convolutions of 10 MB and 8 MB of an activation over 7 MB; the update touches none.
    assert touches(made()) == pytest.approx(28 / 7)


def test_another_batch() -> None:
    assert CONVOLUTION.at_batch(4, 8) == (6e9, 2e6 + 2 * 8e6)
    assert UPDATE.at_batch(4, 8) == (0.0, 5e6)
