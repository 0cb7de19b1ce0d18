"""Hints for unknown names: the nearest known ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence

MOST_NAMES = 15
"""At most this many known names are listed for a name that resembles none of them."""
LONGEST_NAME = 200


def suggest(wrong: str, known: Sequence[str], every: str = "", prefix: str = "") -> str:
    """A hint for an unknown name: the nearest known one, with ``prefix`` before it; else all if they are few.

    If they are many, ``every`` says where all of them are listed; without it, the hint names the least unlike ones.
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


def suggest_by_title(
    wrong: str, titles: Mapping[str, str], every: str = "", preferred: Collection[str] | None = None
) -> str:
    """A hint for an unknown name, from titles by name: those with it as a word in their title, else as ``suggest``.

    If several have it but only one of them is ``preferred``, that one is suggested, and the others are named.
    """
    word = re.compile(rf"(?<!\w){re.escape(wrong[:LONGEST_NAME])}(?!\w)", re.IGNORECASE)
    names = [name for name, title in titles.items() if wrong and word.search(title)]
    best = [name for name in names if preferred is None or name in preferred]
    if len(best) == 1 or len(names) == 1:
        (name, *_) = best or names
        others = [other for other in names if other != name]
        also = f" {wrong} is also in the title of {', '.join(others)}" if others else ""
        return f"did you mean '{name}', which is {titles[name]}?{also}"
    if names:
        return f"{wrong} is in the title of {', '.join(names)}"
    return suggest(wrong, list(titles), every)
