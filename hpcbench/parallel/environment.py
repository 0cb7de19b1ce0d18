"""Lightning Fabric with the ranks of this package, which gives it device and precision; it detects nothing itself."""

from __future__ import annotations

from typing import Any

import torch

from hpcbench.config.schema import RunConfig
from hpcbench.parallel.fabric import (
    Accelerator,
    ClusterEnvironment,
    DoublePrecision,
    Fabric,
    MixedPrecision,
    Precision,
    SingleDeviceStrategy,
)
from hpcbench.parallel.precision import PrecisionPolicy, resolve_precision, set_tf32
from staging.errors import InputError
from staging.ranks.launch import Launch


def choose_device(launch: Launch, accelerator: str) -> torch.device:
    """The device of this rank: the accelerator of its local rank, or the CPU.

    Raises ``InputError`` if a node has more ranks than accelerators. A launcher that shows each rank one
    accelerator of its own is fine.
    """
    if accelerator == "cpu" or not torch.accelerator.is_available():
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator()
    assert device is not None
    count = torch.accelerator.device_count()
    if launch.local_rank >= count > 1:
        raise InputError(
            f"{launch.local_size} ranks on a node with {count} accelerators; start at most {count} ranks per node, "
            "or set parallel.accelerator cpu"
        )
    return torch.device(device.type, launch.local_rank % count)


def make_fabric(launch: Launch, config: RunConfig) -> tuple[Fabric, PrecisionPolicy]:
    """Fabric for the device and precision of this rank. It does not handle communication between ranks."""
    device = choose_device(launch, config.parallel.accelerator)
    if config.train.tf32 is not None:
        set_tf32(config.train.tf32)
    strategy = SingleDeviceStrategy(device=device, accelerator=TorchAccelerator())
    # Else streams, events, kernels and generators without a device of their own are those of the node's first one.
    strategy.setup_environment()  # Fabric would call it in ``launch``, which is for those who let it start ranks
    plugin = precision_plugin(resolve_precision(config.train.precision, device), device)
    fabric = Fabric(strategy=strategy, plugins=[LaunchEnvironment(launch), plugin])
    return fabric, PrecisionPolicy(fabric, plugin)


def precision_plugin(precision: str, device: torch.device) -> Precision:
    """Fabric's plug-in for ``precision``, for this kind of ``device``."""
    if precision == "64-true":
        return DoublePrecision()
    if precision in ("16-mixed", "bf16-mixed"):
        return MixedPrecision(precision, device=device.type)  # type: ignore[arg-type]
    return Precision()


class LaunchEnvironment(ClusterEnvironment):
    """Fabric's view of the ranks: exactly what ``detect`` found."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return "127.0.0.1"

    @property
    def main_port(self) -> int:
        return 0

    @staticmethod
    def detect() -> bool:
        return True

    def world_size(self) -> int:
        return self._launch.world_size

    def set_world_size(self, size: int) -> None:
        """Do nothing: Fabric may not change the ranks."""

    def global_rank(self) -> int:
        return self._launch.rank

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: Fabric may not change the ranks."""

    def local_rank(self) -> int:
        return self._launch.local_rank

    def node_rank(self) -> int:
        return self._launch.node_rank


class TorchAccelerator(Accelerator):
    """Any device that torch has, through ``torch.accelerator``; the CPU if it has none."""

    def setup_device(self, device: torch.device) -> None:
        if device.type != "cpu":
            # Renamed between torch 2.6 and 2.8.
            select = getattr(torch.accelerator, "set_device_index", None) or torch.accelerator.set_device_idx
            select(device.index)

    def teardown(self) -> None:
        pass

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "torch"
