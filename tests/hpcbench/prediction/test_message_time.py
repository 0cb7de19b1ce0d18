"""Messages of a step from a characterisation: by hand, as they were measured, and with what can be hidden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpcbench.batch.machine import Machine
from hpcbench.characterisation.file import write_characterisation
from hpcbench.characterisation.model import Characterisation, Curve, Message, StepTimes
from hpcbench.prediction.calibration import Calibration, measured_entry
from hpcbench.prediction.changes import INTERCONNECT, effects
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.forecast import forecast
from hpcbench.prediction.kernel_time import kernels_of
from hpcbench.prediction.message_time import MessageTime, Sent
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.step_time import StepCase, case_of
from hpcbench.prediction.workload import work_of
from tests.hpcbench.prediction.test_forecast import training
from tests.hpcbench.prediction.test_kernel_time import characterisation_with, kernel

GRADIENTS = Sent("gradients", "between nodes", 4, 8e6, 1e-3, 1e8, 1e9, 2, exposed_s=0.021)
"""4 ms of latency and 80 ms of bytes between two nodes, of which a step waits for a quarter."""


def case(nodes: float, batch: float = 4, network: float = 1e9, devices: float = 1) -> StepCase:
    platform = Platform("m", "m", 1, "", None, 1e11, 1e12, None, Fact(network, network), Fact(1e9, 1e9))
    return case_of(work_of("cosmoflow"), platform, nodes, devices, batch, newer=True)


def characterised(step_s: float = 0.3, **changes: object) -> Characterisation:
    """Two nodes of a rank each, with gradients of 8 MB and halos of 2 MB."""
    curves = (Curve("all_reduce", 2, 2, "between nodes", (), 1e-3, 1e8),
              Curve("exchange", 2, 2, "between nodes", (), 5e-4, 2e8))  # fmt: skip
    messages = (Message("gradients", "all_reduce", "between nodes", 4, 8_000_000, 0.021),
                Message("halo", "exchange", "between nodes", 6, 2_000_000, None, fixed=False))  # fmt: skip
    steps = (StepTimes(1, 1, 4, 3, step_s, step_s, step_s, (step_s,), (1.0,)),
             StepTimes(2, 2, 4, 3, 0.4, 0.4, 0.4, (0.4, 0.4), (1.0, 1.0)))  # fmt: skip
    made = characterisation_with(kernel("copy", 0, 1e9, 1), curves=curves, messages=messages, steps=steps)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_latency_grows_with_hops_and_bytes_with_what_a_ring_sends() -> None:
    assert GRADIENTS.seconds(2) == pytest.approx(4 * 1e-3 + 8e6 / 1e8)
    # three hops instead of one; 7/8 of the bytes instead of a half
    assert GRADIENTS.seconds(8) == pytest.approx(3 * 4e-3 + 0.08 * (7 / 8) / (1 / 2))
    assert GRADIENTS.seconds(2, latency=2.0) == pytest.approx(8e-3 + 0.08)
    assert GRADIENTS.seconds(2, rate=0.5) == pytest.approx(4e-3 + 0.16)
    assert GRADIENTS.seconds(1) == 0
    halo = replace(GRADIENTS, grows=False, fixed=False)
    assert halo.seconds(64, batch_ratio=2.0) == pytest.approx(4e-3 + 0.16)


def test_what_was_waited_for_comes_back() -> None:
    messages = MessageTime((GRADIENTS,), 4, 0.3)
    assert messages.exposed_s(case(2), 0.3) == pytest.approx(0.021)
    assert MessageTime((replace(GRADIENTS, exposed_s=None),), 4, 0.3).exposed_s(case(2), 0.3) == pytest.approx(0.084)


def test_the_hidden_share_stays_while_the_backward_pass_is_longer() -> None:
    messages = MessageTime((GRADIENTS,), 4, 0.3)
    # 88 ms of a backward pass of 200 ms
    assert messages.exposed_s(case(2), 0.3, latency=2.0) == pytest.approx(0.25 * 0.088)
    # 17 times the bytes: 1.06 s, of which three quarters of 200 ms stay hidden
    many = MessageTime((replace(GRADIENTS, link_bytes_per_s=17e9),), 4, 0.3)
    assert many.exposed_s(case(2), 0.3) == pytest.approx(0.004 + 17 * 0.08 - 0.75 * 0.2)


def test_messages_longer_than_the_backward_pass_hide_no_more_than_they_did() -> None:
    # a pass of 30 ms hid 63 ms of the messages' 84: what they take in addition is waited for
    messages = MessageTime((GRADIENTS,), 4, 0.03)
    assert messages.exposed_s(case(2), 0.03, latency=2.0) == pytest.approx(0.021 + 0.004)
    assert messages.exposed_s(case(2), 0.06, latency=2.0) == pytest.approx(0.25 * 0.088)


def test_messages_of_a_characterisation() -> None:
    messages = MessageTime.of(characterised())
    assert messages is not None
    assert [(sent.kind, sent.among, sent.grows, sent.fixed) for sent in messages.messages] == [
        ("gradients", 2, True, True), ("halo", 2, False, False),
    ]  # fmt: skip
    # the machine's network carries five times what an exchange reached here; halos of twice the batch
    assert messages.seconds(case(2, batch=8)) == pytest.approx(0.004 + 0.016 + 6 * 5e-4 + 4e6 / 1e9)
    assert messages.covers(2)
    assert not messages.covers(1)
    alone = MessageTime.of(characterised(curves=characterised().curves[:1]))
    assert alone is not None
    # a ring of two sends each byte once
    assert [(sent.kind, sent.link_bytes_per_s) for sent in alone.messages] == [("gradients", 1e8)]
    assert MessageTime.of(characterised(curves=())) is None
    single = tuple(replace(message, link="none") for message in characterised().messages)
    assert MessageTime.of(characterisation_with(kernel("copy", 0, 1e9, 1), messages=single)) is None


def test_a_message_that_was_sent_alone_tells_more_than_the_curve() -> None:
    gradients, halo = characterised().messages
    messages = MessageTime.of(characterised(messages=(replace(gradients, alone_s=0.042), halo)))
    assert messages is not None
    sent = messages.messages[0]
    # four of 42 ms, where the curve has 84 ms for all of them
    assert sent.seconds(2) == pytest.approx(4 * 0.042)
    assert (sent.latency_s, sent.bytes_per_s) == pytest.approx((2e-3, 5e7))


def test_a_file_with_several_ranks_gives_its_messages(tmp_path: Path) -> None:
    write_characterisation(characterised(), tmp_path / "c.json")
    assert kernels_of(tmp_path / "c.json").messages == MessageTime.of(characterised())
    write_characterisation(characterisation_with(kernel("copy", 0, 1e9, 1)), tmp_path / "one.json")
    assert kernels_of(tmp_path / "one.json").messages is None


def test_a_forecast_waits_for_the_characterised_messages(fitted: Fitted, machines: dict[str, Machine]) -> None:
    base = training(machines, 64, 512)
    network = base.platform.network_bytes_per_s.central / 8
    gradients = Sent("gradients", "between nodes", 5, 36e6, 1e-4, network / 2, 8 * network, 2, exposed_s=1e-3)
    messages = MessageTime((gradients,), 1, 0.009)
    calibration = Calibration(messages=messages)
    result = forecast(fitted, base, calibration)
    step = float(messages.exposed_s(case(64, 1, 8 * network, 8), result.parts["device"] / 23 / 1024))
    assert result.parts["messages"] == pytest.approx(23 * 1024 * step)
    slower = effects(fitted, result, calibration, INTERCONNECT)
    # 5 messages of 100 us take 6 hops, and are longer than the pass that could hide them; epoch jitter comes on top
    assert slower["latency doubled"] * result.time.central == pytest.approx(23 * 1024 * 5 * 1e-4 * 6, rel=0.02)
    assert slower["both"] > slower["bandwidth halved"] > slower["latency doubled"] > 0
    # a run on the machine keeps the step, whatever waits in it
    entry = next(entry for entry in fitted.entries if entry.tuned and entry.application == "cosmoflow")
    both = replace(calibration, runs=(measured_entry(entry),))
    assert effects(fitted, forecast(fitted, base, both), both, INTERCONNECT)["latency doubled"] > 0
    assert np.isfinite(forecast(fitted, base, both).time.central)
