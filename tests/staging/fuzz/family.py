"""What a family of files is to the fuzzer, and the table of all families."""

from __future__ import annotations

import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tests.staging.fuzz.mutations import Mutator

FAMILIES = {
    "manifest": "tests.staging.fuzz.books:ManifestFamily",
    "journal": "tests.staging.fuzz.books:JournalFamily",
    "lock": "tests.staging.fuzz.books:LockFamily",
    "probe": "tests.staging.fuzz.books:ProbeFamily",
    "index": "tests.staging.fuzz.index:IndexFamily",
    "tar": "tests.staging.fuzz.archives:TarFamily",
    "compressed": "tests.staging.fuzz.archives:CompressedFamily",
    "tfrecord": "tests.staging.fuzz.records:TFRecordFamily",
    "example": "tests.staging.fuzz.records:ExampleFamily",
    "npy": "tests.staging.fuzz.arrays:NpyFamily",
    "hdf5": "tests.staging.fuzz.hdf5_files:HDF5Family",
}
"""Module and class of each; a child imports those that it is asked for."""


class Family(ABC):
    """Files of one format: sound ones, how mutated ones are made right in their checksums, and who reads them."""

    tokens: Sequence[bytes] = (b"",)
    """What means something in such a file."""
    memory_bytes = 32 << 20
    """What reading may take beside ``memory_factor`` times the file."""
    memory_factor = 64

    def __init__(self) -> None:
        self.seeds = self.make_seeds(random.Random(0))

    @abstractmethod
    def make_seeds(self, dice: random.Random) -> list[bytes]:
        """Small sound files, also with many records; always the same."""

    @abstractmethod
    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """``data`` with checksums and lengths as they should be, as far as that can be told."""

    @abstractmethod
    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """Put ``data`` through all readers, in files below the empty ``folder`` where they need some.

        Bad input of one reader does not keep the others from theirs: ``refused`` is around each.
        """


def find_family(name: str) -> Family:
    """The family called ``name``, of the table or ``module:Class``."""
    module, _, cls = FAMILIES.get(name, name).partition(":")
    found = getattr(importlib.import_module(module), cls)()
    assert isinstance(found, Family)
    return found


def make_case(family: Family, name: str, seed: int, number: int) -> tuple[bytes, random.Random]:
    """The file of one case, and the dice for reading it: both depend on name, seed and number alone."""
    dice = random.Random(f"{name} {seed} {number}")
    data = Mutator(dice, family.tokens, family.seeds).mutate(dice.choice(family.seeds))
    if number % 2:
        data = family.repair(data, dice)
    return data, dice
