"""What we use of Lightning Fabric: from its own package, or from the whole of Lightning where that alone is installed.

They are the same code, but the whole imports the training framework and torchmetrics too, two seconds in every rank.
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
