"""Names of applications as papers write them."""

from __future__ import annotations

NAMES = {"cosmoflow": "CosmoFlow", "deepcam": "DeepCAM", "oc20": "OpenCatalyst", "openfold": "OpenFold"}


def application_name(application: str) -> str:
    """The name as papers write it; for any other application its own, without the ``$`` that plots read as math."""
    return NAMES.get(application, application.replace("$", ""))
