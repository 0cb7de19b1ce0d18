"""What a measurement reports while it runs, or if the machine cannot make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Say = Callable[[Any], None]
"""Reports a part of a running measurement."""


class SkipMeasurementError(Exception):
    """This machine cannot make the measurement; the message says why."""
