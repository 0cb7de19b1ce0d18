"""Names of applications as papers write them."""

from __future__ import annotations

NAMES = {"cosmoflow": "CosmoFlow", "deepcam": "DeepCAM", "oc20": "OpenCatalyst", "openfold": "OpenFold"}


def application_name(application: str) -> str:
    """The name as papers write it; that of the log, without what plots read as mathematics, where it is another."""
    return NAMES.get(application, application.replace("$", ""))
