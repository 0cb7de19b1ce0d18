"""Busy time of an accelerator, from a driver of our own making."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest
import torch

from hpcbench.measure.device_use import DeviceUse, find_utilization
from hpcbench.measure.energy_sources import Absent


class NVMLError(Exception):
    """The driver's own."""


def driver(rates: list[float]) -> SimpleNamespace:
    """A package pynvml whose only device, GPU-abc, gives ``rates`` in percent, and the last of them from then on."""

    def handle(uuid: str) -> str:
        if uuid != "GPU-abc":
            raise NVMLError("Not Found")
        return uuid

    def read(_: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=rates.pop(0) if len(rates) > 1 else rates[0], memory=99)

    return SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=handle, nvmlDeviceGetUtilizationRates=read
    )


def test_busy_time_is_the_share_of_the_sampled_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver([25.0]))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="abc"))
    found = find_utilization(torch.device("cuda", 0))
    assert not isinstance(found, Absent)
    use = DeviceUse(found, interval_s=0.01)
    use.start()
    time.sleep(0.2)
    use.stop()
    row = use.row()
    assert row["device_busy_s"] == pytest.approx(0.25 * row["device_sampled_s"])
    assert 0.0 < row["device_sampled_s"] <= 1.0


def test_what_is_not_sampled_is_absent_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = DeviceUse(find_utilization(torch.device("cpu")))
    cpu.start()
    cpu.stop()
    assert cpu.row() == {
        "device_busy_s": None, "device_sampled_s": None, "device_note": "no counter of cpu devices is known",
    }  # fmt: skip
    with monkeypatch.context() as rocm:  # whose devices torch calls cuda, too
        rocm.setattr(torch.version, "hip", "6.4")
        assert find_utilization(torch.device("cuda", 0)) == Absent("no counter of ROCm devices is known")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = find_utilization(torch.device("cuda", 0))
    assert found == Absent('the package nvidia-ml-py is not installed (pip install "hpcbench-ml[energy]")')
    monkeypatch.setitem(sys.modules, "pynvml", driver([25.0]))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="other"))
    assert find_utilization(torch.device("cuda", 0)) == Absent("NVML: Not Found")
