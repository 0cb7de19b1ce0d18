"""How deep the values of a run's files nest: what the suite writes is shallow, and deeper values end in recursion."""

from __future__ import annotations

from typing import Any


def is_within(value: Any, levels: int) -> bool:
    """Whether lists and mappings are at most ``levels`` within one another."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(is_within(part, levels - 1) for part in parts)
