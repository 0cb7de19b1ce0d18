"""The share of the time for which a rank's accelerator is busy, by its driver's count; absent where there is none."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpcbench.measure.energy_sources import Absent

if TYPE_CHECKING:
    import torch

INTERVAL_S = 0.5
"""NVML's figure covers the last sixth of a second to a second, depending on the product."""
Utilization = Callable[[], float]
"""The share of the last sampling period in which a kernel ran on the device."""


class DeviceUse:
    """Samples the utilization of a device in a thread, between ``start`` and ``stop``."""

    def __init__(self, utilization: Utilization | Absent, interval_s: float = INTERVAL_S) -> None:
        self.busy_s = 0.0
        self.sampled_s = 0.0
        self.note = utilization.reason if isinstance(utilization, Absent) else ""
        """Why there is no figure, if there is none."""
        self._utilization = utilization
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="device use", daemon=True)

    def start(self) -> None:
        """Start counting; call it once."""
        if not isinstance(self._utilization, Absent):
            self._thread.start()

    def stop(self) -> None:
        """Stop counting."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def row(self) -> dict[str, Any]:
        """Return the columns of ``ranks.csv``; seconds are unset if nothing was sampled."""
        known = self.sampled_s > 0
        return {
            "device_busy_s": self.busy_s if known else None,
            "device_sampled_s": self.sampled_s if known else None,
            "device_note": "" if known else self.note,
        }

    def _watch(self) -> None:
        assert not isinstance(self._utilization, Absent)
        last = time.monotonic()
        while not self._stop.wait(self._interval_s):
            try:
                share = self._utilization()
            except (OSError, ValueError) as error:
                self.note = str(error)
                return
            now = time.monotonic()
            self.busy_s += share * (now - last)
            self.sampled_s += now - last
            last = now


def find_utilization(device: torch.device) -> Utilization | Absent:
    """Return NVML's utilization of an NVIDIA GPU (``nvmlDeviceGetUtilizationRates``); others have no counter here."""
    import torch

    if device.type != "cuda" or torch.version.hip:
        return Absent(f"no counter of {'ROCm' if device.type == 'cuda' else device.type} devices is known")
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Absent('the package nvidia-ml-py is not installed (pip install "hpcbench-ml[energy]")')
    try:
        nvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        nvml.nvmlDeviceGetUtilizationRates(handle)
    except (nvml.NVMLError, AttributeError, RuntimeError) as error:
        return Absent(f"NVML: {error}")

    def utilization() -> float:
        try:
            return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error

    return utilization
