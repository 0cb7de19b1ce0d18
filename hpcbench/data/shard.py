"""A part of a numbered set: this node's samples, or their files, by their numbers in the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcbench.data.sampler import Indices
from staging.errors import DataError


class Shard(Sequence[Any]):
    """The elements of ``items``; number ``numbers[i]`` of ``total`` is ``items[i]``. Its length is ``total``.

    A number that is on another node raises ``DataError``: samples never travel while training reads them.
    """

    def __init__(self, items: Any, numbers: Indices, total: int) -> None:
        self.items = items
        self.numbers = numbers
        self._place: NDArray[np.int64] = np.full(total, -1, np.int64)
        self._place[numbers] = np.arange(len(numbers))

    def __len__(self) -> int:
        return len(self._place)

    def __getitem__(self, index: Any) -> Any:
        place = self.place(index)
        if place is None:
            raise DataError(f"sample {index}", "is in the shard of another node", "report this: a node reads its own")
        return self.items[place]

    def place(self, index: int) -> int | None:
        """Where number ``index`` of the whole set is in ``items``; ``None`` if another node has it."""
        place = int(self._place[index])
        return None if place < 0 else place

    def also(self, items: Any) -> Shard:
        """Other elements of the same samples, such as their files."""
        return Shard(items, self.numbers, len(self))


def some_sample(samples: Any) -> int:
    """The number of a sample that can be read here."""
    return int(samples.numbers[0]) if isinstance(samples, Shard) else 0
