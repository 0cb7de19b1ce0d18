"""Name the samples of a CosmoFlow set in the order of one of their parameters, for a study of placements.

    python docs/studies/ordered_set.py data/cosmoflow data/cosmoflow-ordered --by sigma_8

Writes hard links to the files of the set (TFRecord, HDF5 or npy) into a new folder, on the same file system. The
training files are numbered by the parameter, so that a shard which is a run of the sorted names has a part of its range
only; the validation files keep their names.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from apps.cosmoflow.config import PARAMETERS
from apps.cosmoflow.inspection import recognize_file
from apps.cosmoflow.samples import (
    SUFFIXES,
    checked_label,
    files_of_sample,
    label_file,
    read_features,
    read_label,
    read_npy_label,
)
from staging.errors import DataError, InputError

SPLITS = ("train", "validation")


def main() -> None:
    """Link every file of both splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--by", choices=PARAMETERS, default="sigma_8")
    args = parser.parse_args()
    try:
        write_ordered(args.source, args.out, PARAMETERS.index(args.by))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def write_ordered(source: Path, out: Path, column: int) -> None:
    """Link the set ``source`` into the new folder ``out``, which appears when it is whole.

    Raises ``InputError`` for an empty set, a file that is no sample, and a folder that exists or cannot hold the links.
    """
    if os.path.lexists(out):
        raise InputError(f"{out} exists; remove it, or name another folder")
    form = format_of(source)
    samples = {split: samples_of(source / split, form) for split in SPLITS}
    order = np.argsort([label(path, form)[column] for path in samples["train"]], kind="stable").tolist()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            part = Path(scratch) / out.name
            for split in SPLITS:
                (part / split).mkdir(parents=True)
            for number, index in enumerate(order):
                link(samples["train"][index], form, part / "train", f"{number:08d}_")
            for path in samples["validation"]:
                link(path, form, part / "validation")
            part.rename(out)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise InputError(f"{out} is on another file system than {source}; name a folder on the same one") from None
        raise InputError(f"{out} cannot hold links to {source} ({error.strerror}); name another folder") from None


def format_of(source: Path) -> str:
    """The one format in which the folder ``train`` of a set has samples. Raises ``InputError`` if there is not one."""
    folder = source / "train"
    forms = [form for form, suffix in SUFFIXES.items() if any(folder.glob(f"*{suffix}"))]
    if not forms:
        raise InputError(f"{folder} has no CosmoFlow sample (*{', *'.join(SUFFIXES.values())}); name another set")
    if len(forms) > 1:
        raise InputError(f"{folder} has samples in {len(forms)} formats ({', '.join(forms)}); keep one of them")
    return forms[0]


def samples_of(folder: Path, form: str) -> list[Path]:
    """The file of the counts of each sample, sorted by name. Raises ``InputError`` if there is none."""
    files = sorted(folder.glob(f"*{SUFFIXES[form]}"))
    if not files:
        raise InputError(f"{folder} has no sample (*{SUFFIXES[form]}); add some, or name another set")
    return files


def label(path: Path, form: str) -> list[float]:
    """The four scaled parameters of a sample. Raises ``DataError`` if it is none."""
    if form == "npy":
        values = read_npy_label(label_file(path))
    elif form == "hdf5":
        values = read_label(path, "y")
    elif found := recognize_file(path):
        values = checked_label(path, np.asarray(read_features(path, found["compression"])["y"], np.float32))
    else:
        raise DataError(path, "is no CosmoFlow sample", "remove it from the set")
    return [float(value) for value in values]


def link(path: Path, form: str, folder: Path, prefix: str = "") -> None:
    """Hard links to the files of a sample: the set is staged and read like any other."""
    for file in files_of_sample(path, form):
        os.link(file, folder / f"{prefix}{file.name}")


if __name__ == "__main__":
    main()
