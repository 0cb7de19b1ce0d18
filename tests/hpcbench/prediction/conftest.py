"""The model as it is fitted to the published runs, once for all tests."""

from __future__ import annotations

import pytest

from hpcbench.batch.machine import Machine
from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.fitted import Fitted, fit_published
from hpcbench.prediction.platforms import shipped_machines


@pytest.fixture(scope="session")
def fitted() -> Fitted:
    return fit_published()


@pytest.fixture(scope="session")
def entries(fitted: Fitted) -> tuple[ModelEntry, ...]:
    return fitted.entries


@pytest.fixture(scope="session")
def machines() -> dict[str, Machine]:
    return {machine.name: machine for machine in shipped_machines()}
