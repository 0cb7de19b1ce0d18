"""Makes foreign text one readable line: names and values from files may hold newlines, terminal codes or a megabyte."""

from __future__ import annotations

LONGEST = 2000
"""The most characters of a message. Staging's own longest one contains a path of some hundred characters."""


def one_line(text: str, longest: int = LONGEST) -> str:
    """``text`` as one printable line of at most ``longest`` characters; longer text loses its middle.

    White space becomes a space, and any other unprintable character, lone surrogates included, its escape sequence.
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
