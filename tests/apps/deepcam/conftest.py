"""An atmosphere at rest, in which single events can be planted."""

import numpy as np
import pytest
import torch

from apps.deepcam.config import Config
from apps.deepcam.fields import Fields, publish
from apps.deepcam.grid import CPU, global_grid


@pytest.fixture
def grid():
    return global_grid(192, 288, CPU)


@pytest.fixture
def calm(grid):
    """Warm, moist air at rest everywhere."""
    values = {
        "tmq": 30.0, "u850": 0.0, "v850": 0.0, "ubot": 0.0, "vbot": 0.0, "q": 0.011, "psl": 101000.0, "t850": 285.0,
        "t500": 262.0, "t200": 219.0, "prect": 1e-8, "ts": 299.0, "trefht": 298.0,
    }  # fmt: skip
    return Fields(**{name: torch.full((grid.height, grid.width), value) for name, value in values.items()})


@pytest.fixture
def published(grid):
    """Turns fields into a sample as published, as a NumPy array."""
    return lambda fields: publish(fields, grid, np.random.default_rng(0)).numpy()


@pytest.fixture
def small():
    """A configuration of 48 x 64 pixels."""
    config = Config()
    config.data.height, config.data.width = 48, 64
    return config
