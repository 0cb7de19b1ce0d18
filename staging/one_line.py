"""Text of others in a line for people: names and values from files may hold newlines, terminal codes, or a megabyte."""

from __future__ import annotations

LONGEST = 2000
"""Characters of a message. The longest that staging itself makes has a path of some hundreds in it."""


def one_line(text: str, longest: int = LONGEST) -> str:
    """``text`` in one printable line of at most ``longest`` characters; what is too long lacks its middle.

    White space becomes a space, and whatever else no terminal shows, lone surrogates among it, its escape sequence.
    """
    text = _cut(text, longest)
    return text if text.isprintable() else _cut("".join(map(_shown, text)), longest)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    start = longest * 2 // 3
    return f"{text[:start]} ... {text[len(text) - (longest - start - 5) :]}"


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else letter.encode("unicode_escape").decode("ascii")
