"""Ways in which a file is damaged, or forged, without knowing what it holds."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

LARGEST = 256 << 10
"""Bytes of a mutated file, as far as these mutations go; those of ``nest`` have ``NESTED_BYTES`` at most."""
NESTED_BYTES = 1 << 20
DEEPEST = 100_000
BORDERS = sorted({side * (1 << bits) + more for bits in (0, 7, 8, 15, 16, 31, 32, 63, 64) for more in (-1, 0, 1)
                  for side in (1, -1)})  # fmt: skip
"""Integers at which a width ends."""
TEXT_NUMBERS = [str(number).encode() for number in BORDERS] + [
    b"9" * 5000, b"1e999", b"-1e999", b"NaN", b"Infinity", b"0.5", b"1e308", b"00", b"-0", b"", b"0x10", b"1_0",
    "\u0663".encode(),
]  # fmt: skip
DIGITS = re.compile(rb"\d+")


class Mutator:
    """Damages files by the draws of ``dice``; ``tokens`` are what means something to the format."""

    def __init__(self, dice: random.Random, tokens: Sequence[bytes], others: Sequence[bytes]) -> None:
        self.dice, self.tokens, self.others = dice, tokens, others
        self._ways: list[Callable[[bytearray], object]] = [
            self.flip, self.flip, self.put_byte, self.put_byte, self.truncate, self.duplicate, self.delete,
            self.splice, self.integer, self.integer, self.number, self.token, self.token, self.over_token, self.zeros,
        ]  # fmt: skip

    def mutate(self, data: bytes) -> bytes:
        """``data`` after one to eight mutations; now and then nested or repeated a hundred thousand times."""
        found = bytearray(data)
        for _ in range(1 + min(int(self.dice.expovariate(0.8)), 7)):
            self.dice.choice(self._ways)(found)
            del found[LARGEST:]
        if self.dice.random() < 0.005:
            self.nest(found)
        return bytes(found)

    def flip(self, data: bytearray) -> None:
        """One bit is another."""
        if data:
            data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)

    def put_byte(self, data: bytearray) -> None:
        """One byte is another."""
        if data:
            data[self.dice.randrange(len(data))] = self.dice.choice((0, 1, 0x7F, 0x80, 0xFF, self.dice.randrange(256)))

    def truncate(self, data: bytearray) -> None:
        """The end is missing."""
        del data[self.dice.randrange(len(data) + 1) :]

    def duplicate(self, data: bytearray) -> None:
        """A span comes again, elsewhere."""
        start, stop = self._span(data)
        place = self.dice.randrange(len(data) + 1)
        data[place:place] = data[start:stop] * self.dice.choice((1, 1, 1, 2, 17))

    def delete(self, data: bytearray) -> None:
        """A span is missing."""
        start, stop = self._span(data)
        del data[start:stop]

    def splice(self, data: bytearray) -> None:
        """The end is that of another file."""
        other = self.dice.choice(self.others)
        data[self.dice.randrange(len(data) + 1) :] = other[self.dice.randrange(len(other) + 1) :]

    def integer(self, data: bytearray) -> None:
        """A binary number is one at a border."""
        width = self.dice.choice((1, 2, 4, 8))
        number = self.dice.choice((*BORDERS, len(data), len(data) - 1, len(data) + 1))
        place = self.dice.randrange(max(len(data) - width, 0) + 1)
        order = self.dice.choice(("little", "big"))
        data[place : place + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, order)  # type: ignore[arg-type]

    def number(self, data: bytearray) -> None:
        """A number in digits is another one."""
        found = [match.span() for match in DIGITS.finditer(data)]
        if found:
            start, stop = self.dice.choice(found)
            data[start:stop] = self.dice.choice(TEXT_NUMBERS)

    def token(self, data: bytearray) -> None:
        """What means something stands somewhere."""
        place = self.dice.randrange(len(data) + 1)
        data[place:place] = self.dice.choice(self.tokens)

    def over_token(self, data: bytearray) -> None:
        """What means something stands in the place of other bytes."""
        token = self.dice.choice(self.tokens)
        place = self.dice.randrange(len(data) + 1)
        data[place : place + len(token)] = token

    def zeros(self, data: bytearray) -> None:
        """A span, such as a page that was never written, holds zeros."""
        start, stop = self._span(data)
        data[start:stop] = bytes(stop - start)

    def nest(self, data: bytearray) -> None:
        """A token comes again and again at one place."""
        place = self.dice.randrange(len(data) + 1)
        token, count = self.dice.choice(self.tokens), self.dice.choice((100, 1000, 10_000, DEEPEST))
        data[place:place] = token * min(count, NESTED_BYTES // max(len(token), 1))
        del data[NESTED_BYTES:]

    def _span(self, data: bytearray) -> tuple[int, int]:
        start = self.dice.randrange(len(data) + 1)
        return start, min(len(data), start + int(2 ** self.dice.uniform(0, 12)))
