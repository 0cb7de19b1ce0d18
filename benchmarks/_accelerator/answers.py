"""What a measurement says while it is under way, or where the machine cannot make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Say = Callable[[Any], None]
"""Reports a part of a measurement that is under way."""


class SkipMeasurementError(Exception):
    """This machine cannot make the measurement; the words say why."""
