"""The emulated network delays messages as a queue does, and what it adds to a step is what is predicted."""

from __future__ import annotations

import argparse
from typing import Any

import interconnect
import pytest
from _interconnect_steps import Arriving, Network
from interconnect import BASE, CHANGES, NONE, measure, networks, predicted, rows_of

OPTIONS = argparse.Namespace(preset="smoke", batch=1, repeats=2, steps=1, latency_s=0.05, bytes_per_s=5e6)


def test_messages_follow_one_another() -> None:
    network = Network(0.5, 10.0)
    # 0.5 s and 20 bytes at 10 bytes/s; the second waits for the first, the third finds the network free
    assert [network.arrival(now, size) for now, size in ((1.0, 20), (1.5, 10), (9.0, 10))] == [3.5, 5.0, 10.5]
    assert Network().arrival(2.0, 10**9) == 2.0


def test_a_message_is_waited_for_until_it_is_there() -> None:
    class Real:
        waited = 0

        def wait(self) -> None:
            self.waited += 1

    slept: list[float] = []
    real = Real()
    Arriving(real, 3.5, lambda: 1.0, slept.append).wait()
    Arriving(real, 3.5, lambda: 4.0, slept.append).wait()
    Arriving(None, 3.5, lambda: 3.0, slept.append).wait()
    assert (real.waited, slept) == (2, [2.5, 0.5])


def test_each_change_is_of_one_property() -> None:
    assert networks(0.02, 50e6) == {
        NONE: (0.0, 1e30), BASE: (0.02, 50e6), "latency doubled": (0.04, 50e6), "bandwidth halved": (0.02, 25e6),
        "both": (0.04, 25e6),
    }  # fmt: skip


def measured(base: float, alone: float) -> dict[str, Any]:
    """Four messages of 10 MB together, by hand; every change adds 0.1 s, and the last repeat 0.2 s."""
    changed = {name: [base + 0.1, base + 0.1, base + 0.2] for name in CHANGES}
    times = {NONE: [alone] * 3, BASE: [base] * 3, **changed}
    return {"messages": 4, "bytes": 10_000_000, "taken_s": {"on": times, "off": times}}


def test_what_is_waited_for_without_overlap_is_all_that_is_added() -> None:
    # 0.2 s of latency and 2 s of bytes, all of it waited for
    found = measured(0.1 + 2.2, 0.1)
    expected = predicted(found, found["taken_s"]["off"], OPTIONS)
    assert expected == pytest.approx({"latency doubled": 0.2, "bandwidth halved": 2.0, "both": 2.2})
    rows = rows_of("cosmoflow", found, OPTIONS)
    assert [row["overlap"] for row in rows] == ["on"] * 3 + ["off"] * 3
    assert rows[0]["measured_s"] == pytest.approx(0.1)
    assert (rows[0]["least_s"], rows[0]["most_s"]) == pytest.approx((0.1, 0.2))
    assert rows[0]["error"] == pytest.approx(0.2 / 0.1 - 1)
    assert rows[0]["step_error"] == pytest.approx((2.3 + 0.2) / (2.3 + 0.1) - 1)


def test_a_hidden_share_stays_hidden_below_the_backward_pass() -> None:
    # a pass of 10 s hides half of the messages' 2.2 s
    found = measured(10 + 1.1, 10)
    expected = predicted(found, found["taken_s"]["on"], OPTIONS)
    assert expected == pytest.approx({"latency doubled": 0.1, "bandwidth halved": 1.0, "both": 1.1})


@pytest.mark.slow
@pytest.mark.usefixtures("mpiexec")
def test_the_emulated_delay_is_in_the_step() -> None:
    found = measure("cosmoflow", OPTIONS)
    assert (found["messages"], found["bytes"]) == (3, 238_448)
    for times in found["taken_s"].values():
        assert {name: len(each) for name, each in times.items()} == dict.fromkeys([NONE, BASE, *CHANGES], 2)
    for row in interconnect.rows_of("cosmoflow", found, OPTIONS):
        # three messages of 50 ms, and 238 kB at 5 MB/s
        assert row["base_s"] > 0.198
        assert row["measured_s"] == pytest.approx(row["predicted_s"], rel=0.4)
