"""The input of a training: storage, decoding and links bound it, and what nobody knows of them is in the interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpcbench.batch.machine import Machine, Storage
from hpcbench.prediction.calibration import Calibration, measured_entry
from hpcbench.prediction.epochs import Epochs
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.forecast import Forecast, forecast
from hpcbench.prediction.input_limits import (
    DECODING_BYTES_PER_S,
    STATED,
    InputDraws,
    InputLimits,
    input_limits,
    rates,
    samples_bytes,
)  # fmt: skip
from hpcbench.prediction.platforms import Fact, Platform, platform_of
from hpcbench.prediction.training import Training
from hpcbench.prediction.workload import work_of

KNOWN = Epochs(23.0, 0.05, 0.07, "reference point", "")
FREE = InputLimits(None, None, False, (0.0, 0.0))
WORK = work_of("cosmoflow")


def platform(machines: dict[str, Machine], name: str = "selene") -> Platform:
    return platform_of(machines[name], list(machines.values()))


def ends(fact: Fact | None) -> tuple[float, float]:
    """Both ends of a rate; infinite without one."""
    return (np.inf, np.inf) if fact is None else (fact.low, fact.high)


def predicted(fitted: Fitted, machines: dict[str, Machine], limits: InputLimits | None, **changes: object) -> Forecast:
    """CosmoFlow on 64 nodes of Selene: 8 samples of 16.8 MB on each node in a step of about 8 ms, 17 GB/s."""
    base = Training(WORK, platform(machines), 64, 8, 512, 1, True, WORK.train_samples, WORK.validation_samples, KNOWN,
                    input_limits=limits)  # fmt: skip
    return forecast(fitted, replace(base, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["storage_bytes_per_s", "decoding_bytes_per_s", "link_bytes_per_s"])
def test_a_rate_that_may_be_too_low_makes_the_interval_of_the_input(
    name: str, fitted: Fitted, machines: dict[str, Machine]
) -> None:
    each = 8 if name == "link_bytes_per_s" else 1
    wide = predicted(fitted, machines, replace(FREE, **{name: Fact(1e9 / each, 1e12 / each)}))
    fast = predicted(fitted, machines, replace(FREE, **{name: Fact(1e12 / each, 1e12 / each)}))
    slow = predicted(fitted, machines, replace(FREE, **{name: Fact(1e9 / each, 1e9 / each)}))
    assert fast.intervals["input"].high == 0
    assert wide.intervals["input"].low == 0
    # a tenth of the draws is below 2 GB/s; epochs scatter, too
    most = 23 * 1024 * 8 * WORK.landed_bytes / 2e9
    assert wide.intervals["input"].high == pytest.approx(most, rel=0.15)
    assert wide.time.width > fast.time.width
    assert slow.parts["input"] > 0


def test_limits_that_are_likely_too_low_together_keep_their_draws(fitted: Fitted, machines: dict[str, Machine]) -> None:
    """Each is fast enough at its centre, 32 GB/s; that one of three is not has a chance of more than a half."""
    wide = Fact(1e9, 1e12)
    limits = replace(FREE, storage_bytes_per_s=wide, decoding_bytes_per_s=wide, link_bytes_per_s=wide.scaled(1 / 8))
    found = predicted(fitted, machines, limits)
    assert found.parts["input"] == 0
    assert found.intervals["input"].high > found.parts["device"]


def test_the_slowest_of_them_counts() -> None:
    facts = (Fact(2e9, 2e9), Fact(3e9, 3e9), Fact(1e9, 1e9))
    limits = InputLimits("/disk", facts[0], True, (0.25, 0.75), *facts[1:])
    draws, size = InputDraws.central(limits), 1e6 * 8
    # half is read from the disk; four links of 1 GB/s are faster than the cores
    assert float(draws.seconds(1e6, 8, 4, np.asarray(0.0))) == pytest.approx(size / 3e9)
    assert float(draws.seconds(1e6, 8, 1, np.asarray(0.0))) == pytest.approx(size / 1e9)
    assert float(draws.seconds(1e6, 8, 4, np.asarray(0.1))) == pytest.approx(0.05)
    some = InputDraws.draw(limits, np.random.default_rng(1), 4000)
    assert (some.unheld.min(), some.unheld.max()) == pytest.approx((0.25, 0.75), abs=0.01)


def test_samples_without_room_come_again_in_each_epoch(fitted: Fitted, machines: dict[str, Machine]) -> None:
    none = predicted(fitted, machines, FREE)
    found = predicted(fitted, machines, replace(FREE, unheld=(1.0, 1.0)))
    device = found.parts["device"] / 23
    # all of them: an epoch takes as long as the staging, where that is longer than what the devices need
    assert found.parts["input"] / 23 == pytest.approx(max(0.0, found.staging.central - device), rel=1e-9)
    assert found.staging.central > device
    assert found.time.width > none.time.width


def test_a_known_rate_takes_the_place_of_all_limits(fitted: Fitted, machines: dict[str, Machine]) -> None:
    limits = replace(FREE, storage_bytes_per_s=Fact(1e9, 1e9), unheld=(1.0, 1.0))
    assert predicted(fitted, machines, limits, input_bytes_per_s=1e13).intervals["input"].high == 0


def test_limits_are_those_of_the_machine(machines: dict[str, Machine]) -> None:
    selene = platform(machines)
    assert (selene.cores, selene.node_memory_bytes) == (Fact(128, 128), 2**41)
    found = input_limits(selene, WORK, 16)
    assert found.decoding_bytes_per_s == Fact(128 * DECODING_BYTES_PER_S.low, 128 * DECODING_BYTES_PER_S.high)
    # 16 lanes of PCI Express 4, of which an accelerator gets at least 40 %
    assert ends(found.link_bytes_per_s) == pytest.approx((12.6e9, 31.5e9))
    assert (found.storage, found.unheld) == (None, (0.0, 0.0))
    # 3.3 TB on each of 3 nodes: eight drives' room, nobody timed
    assert samples_bytes(WORK, 3) > 2**41
    few = input_limits(selene, WORK, 3)
    assert ends(few.storage_bytes_per_s) == pytest.approx((2e9 * 30 / 3.84, 7e9 * 30 / 3.84))
    measured = input_limits(selene, WORK, 16, measured=True)
    assert (measured.decoding_bytes_per_s, measured.link_bytes_per_s) == (None, None)


def test_the_share_without_room_begins_at_nothing_where_memory_just_does_not_suffice(
    machines: dict[str, Machine],
) -> None:
    """A node keeps samples in its memory up to all of it, although /dev/shm may take half: no jump between sizes."""
    selene = platform(machines)
    size = samples_bytes(WORK, 16)
    shm = (Storage(path="/dev/shm", gb=size / 2 / 1e9, in_memory=True),)
    for memory, share in ((size, 0.0), (0.99 * size, 0.01), (size / 2, 0.5)):
        found = input_limits(replace(selene, node_memory_bytes=memory, storage=shm), WORK, 16)
        assert max(found.unheld) == pytest.approx(share)
        assert found.storage is None


def test_a_drive_with_less_room_than_memory_takes_nothing_from_it(machines: dict[str, Machine]) -> None:
    size = samples_bytes(WORK, 1)
    alone = replace(platform(machines), node_memory_bytes=size / 2, storage=())
    assert input_limits(alone, WORK, 1).unheld[1] == pytest.approx(1 / 2)
    for share, unheld in ((1 / 4, 1 / 2), (3 / 4, 1 / 4)):
        limits = input_limits(replace(alone, storage=(Storage("/local", share * size / 1e9),)), WORK, 1)
        assert (limits.unheld[1], limits.storage) == (pytest.approx(unheld), "/local" if share > 1 / 2 else None)


def test_a_reader_that_was_measured_is_what_decoding_takes(machines: dict[str, Machine]) -> None:
    found = input_limits(platform(machines), replace(WORK, decoding_s=0.01), 16).decoding_bytes_per_s
    assert found is not None
    assert found.central == pytest.approx(128 * WORK.landed_bytes / 0.01)
    assert found.high / found.low == pytest.approx(STATED**2)


def test_what_a_file_lacks_is_an_interval(machines: dict[str, Machine]) -> None:
    known = list(machines.values())
    dark = replace(machines["selene"], cores=None, memory_gib=None, storage=(),
                   sources=tuple(replace(source, facts=tuple(name for name in source.facts if name not in
                                                             ("cores", "memory_gib", "storage./raid/scratch")))
                                 for source in machines["selene"].sources))  # fmt: skip
    made = platform_of(dark, known)
    assert "cores" in made.missing
    # of machines with A100: 8 to 42 cores for each, 8 accelerators
    assert ends(made.cores) == pytest.approx((64, 8 * 128 / 3))
    found = input_limits(made, WORK, 16)
    assert (found.storage, found.is_timed, found.storage_bytes_per_s) == ("a drive", False, Fact(2e9, 7e9))
    # storage that is memory, whose room is not known, holds what the memory holds
    shared = replace(made, node_memory_bytes=2.0**38, storage=(Storage("/dev/shm", in_memory=True),))
    assert input_limits(shared, WORK, 16).unheld[1] == pytest.approx(1 - 2.0**38 / samples_bytes(WORK, 16))


def test_a_link_of_the_file_and_processors(machines: dict[str, Machine]) -> None:
    selene = replace(machines["selene"], host_link_gb_s=20.0, sources=(
        *machines["selene"].sources, replace(machines["selene"].sources[0], facts=("host_link_gb_s",))))  # fmt: skip
    assert platform_of(selene, []).host_link_bytes_per_s == Fact(20e9, 20e9)
    assert platform_of(machines["fugaku"], list(machines.values()), calibrated=True).host_link_bytes_per_s is None
    # a vendor whose links are not known: the least and the most of PCI Express
    frontier = platform_of(machines["frontier"], list(machines.values()), calibrated=True)
    assert ends(frontier.host_link_bytes_per_s) == pytest.approx((0.4 * 15.75e9, 63e9))


def test_published_nodes_read_what_their_limits_allow(fitted: Fitted) -> None:
    """The 27 entries are the test of the assumed rates: none needed more than the upper end of its limits."""
    tuned = [entry for entry in fitted.entries if entry.tuned]
    assert len(tuned) == 27
    for entry in tuned:
        assert entry.platform is not None
        limits = input_limits(entry.platform, entry.work, entry.nodes)
        storage, decoding, link = (np.asarray(ends(fact)[1]) for fact in rates(limits))
        highest = InputDraws(storage, np.asarray(0.0), decoding, link)
        samples, devices = entry.global_batch / entry.nodes, entry.platform.devices
        assert float(highest.seconds(entry.work.landed_bytes, samples, devices, np.asarray(0.0))) < entry.step_s
        assert limits.unheld == (0.0, 0.0), entry.words


def test_a_calibrated_step_has_its_input_in_it(fitted: Fitted) -> None:
    entry = next(entry for entry in fitted.entries if entry.tuned)
    assert entry.platform is not None
    limits = input_limits(entry.platform, entry.work, entry.nodes, measured=True)
    own = Training(entry.work, entry.platform, entry.nodes, entry.platform.devices, entry.global_batch, 1, True,
                   entry.train_samples, entry.validation_samples, KNOWN, input_limits=limits)  # fmt: skip
    found = forecast(fitted, own, Calibration((measured_entry(entry),)))
    assert found.intervals["input"].high == 0
