"""The parts of Lightning Fabric in use: from its own package, or from all of Lightning if only that is installed.

The code is the same, but all of Lightning also imports its training framework and torchmetrics: two seconds per rank.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = [
    "Accelerator",
    "ClusterEnvironment",
    "DoublePrecision",
    "Fabric",
    "MixedPrecision",
    "Precision",
    "SingleDeviceStrategy",
]

if find_spec("lightning_fabric"):
    from lightning_fabric import Fabric
    from lightning_fabric.accelerators.accelerator import Accelerator
    from lightning_fabric.plugins import ClusterEnvironment, MixedPrecision
    from lightning_fabric.plugins.precision import DoublePrecision, Precision
    from lightning_fabric.strategies.single_device import SingleDeviceStrategy
else:
    from lightning.fabric import Fabric  # type: ignore
    from lightning.fabric.accelerators.accelerator import Accelerator  # type: ignore
    from lightning.fabric.plugins import ClusterEnvironment, MixedPrecision  # type: ignore
    from lightning.fabric.plugins.precision import DoublePrecision, Precision  # type: ignore
    from lightning.fabric.strategies.single_device import SingleDeviceStrategy  # type: ignore
