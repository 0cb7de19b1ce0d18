"""Hints for names that nobody knows: the nearest ones that are known."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MOST_NAMES = 15
"""So many known names are told at most to somebody whose own is like none of them."""
LONGEST_NAME = 200


def suggest(wrong: str, known: Sequence[str], every: str = "", prefix: str = "") -> str:
    """A hint for an unknown name: the nearest known one, told with ``prefix``; else all where they are few.

    Where they are many, ``every`` says what tells all of them; without it, those least unlike are told.
    """
    near = difflib.get_close_matches(wrong[:LONGEST_NAME], known, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{prefix}{near[0]}'?"
    if len(known) <= MOST_NAMES:
        return "known: " + ", ".join(prefix + name for name in known)
    if every:
        return f"none of the {len(known)} known is like it; {every}"
    nearest = difflib.get_close_matches(wrong[:LONGEST_NAME], known, n=3, cutoff=0.0)
    return f"none of the {len(known)} known is like it; the nearest are {', '.join(prefix + name for name in nearest)}"
